"""Signs the operations of this MDP with the key in its database."""

from __future__ import annotations

from sqlalchemy import Engine

from mdv.backbone.vector import Life
from mdv.db.replica.keys import read_private_key


class StoredSigner:
    """The signer of one process. The key is read once for each life: a member that joins again has another."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._keys: dict[Life, bytes | None] = {}

    def __call__(self, life: Life, seq: int, chain: bytes) -> bytes:
        from mdv.replication.keys import sign_operation  # loads much, which an MDP without a backbone does not need

        if life not in self._keys:
            with self._engine.connect() as connection:
                self._keys[life] = read_private_key(connection)
        key = self._keys[life]
        return b"" if key is None else sign_operation(key, life, seq, chain)
