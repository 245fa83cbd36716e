"""The provider: an MDP as one process sees it."""

from __future__ import annotations

from sqlalchemy import Engine

from mdv.backbone.local_operation import Signer, no_signature
from mdv.config import CASCADE, Config
from mdv.db.vocabulary import Vocabulary
from mdv.mdp.backbone_signer import StoredSigner
from mdv.mdp.eca.rule_set import RuleSetCache
from mdv.mdp.eca.run import DEFAULT_RUN_LIMITS, RunLimits
from mdv.mdp.eca.slow_rules import SlowRules
from mdv.mdp.real.quotas import DEFAULT_QUOTAS, ProcessQuotas
from mdv.mdp.rule_cache import DEFAULT_RULE_SECONDS, RuleCache
from mdv.mdp.schemas import SchemaCache


class Provider:
    """The database of an MDP, and what this process has cached of it: schemas, ids of properties, and rules.

    `rule_seconds`: the time limit for a rule in one transaction. `run_limits`: the limits of event-condition-action
    rules in one transaction. `cascades_to_readers`: a compensation also undoes later copies that read what it undoes.
    `process_quotas`: of the processes that event-condition-action rules start.
    `signer`: signs the operations of this MDP, if it is in a backbone.
    """

    def __init__(
        self,
        engine: Engine,
        rule_seconds: float = DEFAULT_RULE_SECONDS,
        run_limits: RunLimits = DEFAULT_RUN_LIMITS,
        cascades_to_readers: bool = False,
        process_quotas: ProcessQuotas = DEFAULT_QUOTAS,
    ) -> None:
        self.engine = engine
        self.schemas = SchemaCache()
        self.vocabulary = Vocabulary(engine)
        self.rules = RuleCache(rule_seconds)
        self.eca_rules = RuleSetCache(self.vocabulary)
        self.run_limits = run_limits
        self.cascades_to_readers = cascades_to_readers
        self.slow_rules = SlowRules()
        self.process_quotas = process_quotas
        self.woken = 0
        """Processes that transactions have made ready, since a worker last looked."""
        self.signer: Signer = no_signature
        self.is_in_backbone = False
        """As of the last lock that was taken with this provider: true for the transaction that holds it."""

    @classmethod
    def configured(cls, engine: Engine, config: Config) -> Provider:
        """Return the provider that the settings describe."""
        limits = RunLimits(
            config.eca_steps, config.eca_depth, config.eca_seconds, config.rule_seconds, config.real_actions or None
        )  # fmt: skip
        quotas = ProcessQuotas.configured(config)
        provider = cls(engine, config.rule_seconds, limits, config.eca_readers == CASCADE, quotas)
        provider.signer = StoredSigner(engine)
        return provider

    def for_dry_run(self) -> Provider:
        """Return a provider whose changes of rules do not affect the rules that this one has cached."""
        other = Provider.__new__(Provider)
        other.engine, other.schemas, other.vocabulary = self.engine, self.schemas, self.vocabulary
        other.rules = RuleCache(self.rules.seconds)
        other.eca_rules, other.run_limits = RuleSetCache(self.vocabulary), self.run_limits
        other.cascades_to_readers, other.slow_rules = self.cascades_to_readers, self.slow_rules
        other.signer, other.process_quotas = self.signer, self.process_quotas
        other.woken, other.is_in_backbone = 0, self.is_in_backbone
        return other

    def note_woken(self, number: int) -> None:
        """Note that a transaction has made processes ready."""
        self.woken += number

    def take_woken(self) -> bool:
        """True if transactions have made processes ready since the last call."""
        woken, self.woken = self.woken, 0
        return woken > 0
