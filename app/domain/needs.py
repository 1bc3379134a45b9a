"""What the shards of one batch need of a worker, made ready to be judged by each claim: a few words of bits a need."""

from collections.abc import Collection, Iterable, Mapping

from app.domain.eligibility import Requirement, Serving


class Needs:
    """The needs of a batch by requirement key. Each model, with what is asked of it, is judged once for all keys.

    `parameters` are what some rows of a key ask for that not every runtime takes.
    """

    def __init__(self, requirements: Mapping[str, Requirement]) -> None:
        asks: dict[tuple[str, tuple[str, ...]], int] = {}
        self._endpoints = {key: need.endpoint for key, need in requirements.items()}
        self._masks = {
            key: sum(1 << asks.setdefault(ask, len(asks)) for ask in set(need.asks))
            for key, need in requirements.items()
        }
        self._asks = list(asks)
        self.parameters = {
            key: sorted({name for _, names in need.parameters for name in names}) for key, need in requirements.items()
        }

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._masks)

    def served_by(self, runtimes: Collection[Serving]) -> frozenset[str]:
        """Name the keys that live runtimes together serve (eligibility.can_serve)."""
        found: set[str] = set()
        for endpoint in set(self._endpoints.values()):
            usable = [r for r in runtimes if r.alive and endpoint in r.endpoints]
            if usable:
                lacking = self._mask(not any(r.could_run(endpoint, *ask) for r in usable) for ask in self._asks)
                found |= {
                    key for key, mask in self._masks.items() if self._endpoints[key] == endpoint and not mask & lacking
                }
        return frozenset(found)

    def naming(self, models: Collection[str]) -> frozenset[str]:
        """Name the keys that need one of these models."""
        wanted = self._mask(model in models for model, _ in self._asks)
        return frozenset(key for key, mask in self._masks.items() if mask & wanted)

    @staticmethod
    def _mask(holds: Iterable[bool]) -> int:
        return sum(1 << number for number, is_true in enumerate(holds) if is_true)
