"""The shapes of parameters and answers, for checking the ones and describing the others."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, StrictBool, StrictInt, StrictStr

EXAMPLE: dict[str, Any] = {"example": "http://mdv.example/doc.rdf", "format": "iri"}


class Strict(BaseModel):
    """Parameters: what is not known is refused, so that a typing error does not pass for a default."""

    model_config = ConfigDict(extra="forbid")


class Page(Strict):
    """Parameters of every list."""

    after: str | None = Field(None, description="the `next` of the page before", max_length=2048)
    limit: int = Field(100, ge=1, le=1000, description="how many items, at most")


class DocumentQuery(Page):
    uri: str | None = Field(None, description="the document; absent: a page of all", json_schema_extra=EXAMPLE)


class DocumentUri(Strict):
    uri: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)
    dry_run: bool = Field(False, description="tell what would happen, change nothing")


class HistoryQuery(Page):
    uri: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)
    version: int | None = Field(None, ge=1, le=2_147_483_647, description="one version, as RDF")


class AtomsQuery(Page):
    uri: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)


class ResourceQuery(Page):
    uri: str | None = Field(
        None, description="one resource", json_schema_extra=EXAMPLE | {"example": "http://mdv.example/doc.rdf#host"}
    )
    class_: str | None = Field(
        None,
        alias="class",
        description="instances of this class, subclasses included",
        json_schema_extra={"example": "CycleProvider"},
    )


class QueryQuestion(Strict):
    query: str = Field(description="the text of the query, up to 8 KB")
    limit: StrictInt | None = Field(None, ge=1, le=10_000, description="rows, or resources (at most 1,000) of a page")
    after: str | None = Field(None, description="of resources: the `next` of the page before", max_length=8192)


class TraceQuery(Strict):
    document: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)


class Registration(BaseModel):
    """What a registration or deletion did."""

    document: str
    version: int
    position: int = Field(description="where in the MDP's history the change stands")
    inserted: int = Field(description="resources that were not there before")
    updated: int = Field(description="resources of which something visible changed")
    deleted: int = Field(description="resources that no document describes any more")
    unchanged: int = Field(description="resources that the document describes as before")
    matched: int = Field(description="resources that came to match some rule by this")
    lmrs: int = Field(description="LMRs that were told")
    created: bool
    dry_run: bool | None = None
    told: list[str] | None = Field(None, description="of a dry run: the LMRs that would be told, 100 at most")


class Accepted(BaseModel):
    """A change that has not been carried out yet."""

    job: str
    state: str
    document: str


class JobState(BaseModel):
    """How far a job is."""

    id: str
    kind: str
    state: Literal["queued", "running", "done", "failed"]
    document: str
    created_at: str
    ended_at: str | None
    attempts: int
    priority: int
    request: str | None = Field(description="the X-Request-ID that it came with")
    next_attempt_at: str | None = Field(description="where an attempt failed inside MDV and another will be made")
    dead: bool = Field(description="it failed by no fault of its own, and can be tried again")
    result: Registration | dict[str, Any] | None
    problem: dict[str, Any] | None


class SchemaPut(Strict):
    dry_run: bool = Field(False, description="tell what would happen, change nothing")


class ChangedAspect(BaseModel):
    """Something of a class or property that changed."""

    aspect: Literal["superclasses", "domain", "range", "superproperties", "reference", "values", "namespace", "world"]
    before: list[str] = Field(description="as rules name it; of `reference` strong or weak, of `values` one or several")
    after: list[str]


class ChangedTerm(BaseModel):
    """What became of a part of the schema."""

    what: Literal["world", "class", "property", "datatype", "prefix"]
    name: str = Field(description="as rules name it")
    iri: str | None = Field(description="what the name stands for; of a prefix, its namespace")
    change: Literal["added", "removed", "changed"]
    aspects: list[ChangedAspect]


class ConcernedLmr(BaseModel):
    """An LMR that hears of resources, not of the schema alone."""

    lmr: str
    matched: int
    unmatched: int
    sent: int
    left: int


class SchemaChange(BaseModel):
    """The schema that holds now or, of a dry run, would hold; and what that changes."""

    version: int
    position: int
    changed: bool
    classes: int
    properties: int
    changes: list[ChangedTerm] = Field(description="what MDV takes differently; 500 at most")
    changes_left_out: int
    counts: dict[str, dict[str, int]] = Field(description="how many changes there are, by `what` and `change`")
    rules_anew: int = Field(description="rules that are taken apart otherwise")
    matched: int = Field(description="resources that some LMR's rules come to match by this")
    unmatched: int = Field(description="resources that some LMR's rules cease to match")
    sent: int = Field(description="resources that some LMR is sent")
    left: int = Field(description="resources that leave some LMR: it neither selects them any more, nor holds them")
    lmrs: int = Field(description="LMRs that are told, if only the schema")
    concerned: list[ConcernedLmr] = Field(description="the LMRs that hear of resources, 100 at most")
    dry_run: bool | None = None


class FoundByRule(BaseModel):
    resource: str
    rule: int = Field(description="the number of an atomic rule")


class TracedRow(FoundByRule):
    text: str = Field(description="of the rule")


class FilterTrace(BaseModel):
    """The iterations of the filter, and the results of end rules."""

    document: str
    iterations: list[list[TracedRow]]
    results: list[FoundByRule]
    truncated: bool


class RuleQuestion(Strict):
    rule: str = Field(description="the text of the rule, up to 8 KB")
    sql: StrictBool = Field(False, description="show the SQL, too")


class FilterRule(BaseModel):
    """Where a triggering rule stands among those of its operator."""

    table: str
    class_: str = Field(alias="class")
    property: str | None
    value: str | None


class AtomicRule(BaseModel):
    """A triggering or join rule that a rule is made of."""

    id: int | str = Field(description="its number; a letter where it would be new")
    text: str
    class_: str = Field(alias="class", description="of the resources that it registers")
    kind: Literal["triggering", "join"]
    exists: bool
    uses: int = Field(description="join rules and subscription rules that use it now")
    inputs: list[int | str] = Field(description="of a join rule: the atomic rules that it joins")
    filter_rule: FilterRule | None = Field(description="of a triggering rule")


class RuleGroup(BaseModel):
    """Join rules with the same where part and classes."""

    id: int | None = Field(description="null where it would be new")
    text: str
    members: int = Field(description="join rules in it now")
    rules: list[int | str] = Field(description="those of this rule")


class RuleDriver(BaseModel):
    """The triggering rule by which a rule is found."""

    rule: int | str
    text: str
    table: str


class WholeRuleGroup(BaseModel):
    """Rules that differ in their constants alone, evaluated together."""

    id: int | None = Field(description="null where it would be new")
    text: str
    members: int = Field(description="rules in it now")
    driver: RuleDriver | None = Field(description="null where the rule has no constant")


class RuleSql(BaseModel):
    """The filter's statement for the whole group, and a full evaluation."""

    filter: str
    evaluation: str


class RuleConjunction(BaseModel):
    """One conjunction of a rule, taken apart."""

    normal: str
    atomic_rules: list[AtomicRule]
    tree: str = Field(description="the dependency tree, drawn")
    groups: list[RuleGroup]
    whole_group: WholeRuleGroup
    sql: RuleSql | None = Field(None, description="where it was asked for")


class RuleScan(BaseModel):
    """A class that a change elsewhere may concern as a whole."""

    changed: str
    looks_at: str
    instances: int | None = Field(description="null where they are too many to count in time")
    more: bool = Field(description="there are more than so many")
    text: str


class RuleCost(BaseModel):
    """What a change may cost at worst."""

    bounded: bool = Field(description="a change looks only at what references and equal values lead to")
    worst: int | None = Field(description="resources that one change may look at; null where that is not known")
    scans: list[RuleScan]


class RuleExplained(BaseModel):
    """A rule, explained."""

    rule: str
    normal: str
    conjunctions: list[RuleConjunction]
    matches: int | None = Field(description="resources that match now; null where they cannot be counted in time")
    cost: RuleCost


class Problem(BaseModel):
    """RFC 9457: what went wrong, and where."""

    type: str = Field(json_schema_extra={"example": "urn:mdv:problem:not-found"})
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None


class LmrDraft(Strict):
    name: StrictStr = Field(description="what it is called", max_length=1000)


class SubscriptionDraft(Strict):
    rule: StrictStr = Field(description="the text of the rule, up to 8 KB")
    name: StrictStr | None = Field(None, description="by which other rules of the LMR can search it", max_length=1000)


class Drafts(RootModel[SubscriptionDraft | list[SubscriptionDraft]]):
    """A rule to subscribe, or a list of them."""


class NewRule(Strict):
    rule: StrictStr = Field(description="the text of the rule, up to 8 KB")


class FeedQuery(Strict):
    after: str | None = Field(None, description="the `cursor` of the answer before; absent: a snapshot", max_length=200)
    limit: int = Field(1000, ge=1, le=10_000, description="how many events, about")
    wait: float = Field(0, ge=0, le=3600, description="seconds to wait for an event")
    buckets: str | None = Field(
        None, description="a snapshot of these buckets of the checksum alone, numbers with commas", max_length=2000
    )


class WhyQuery(Strict):
    lmr: str = Field(
        description="the LMR, by name or id", min_length=1, max_length=1000, json_schema_extra={"example": "local"}
    )
    uri: str = Field(description="the resource", json_schema_extra=EXAMPLE, min_length=1)


class Wish(Strict):
    resource: StrictStr | None = Field(None, description="a resource that should be selected")
    class_: StrictStr | None = Field(None, alias="class", description="a class")
    values: dict[str, Any] | None = Field(
        None,
        description="of its instances: by property a value, a list of values, or {op, value}",
        json_schema_extra={"example": {"serverPort": 5874}},
    )


class LmrCreated(BaseModel):
    """The new LMR. Its token is shown this once."""

    id: int
    name: str
    token: str


class LmrToken(LmrCreated):
    """The LMR's new token, shown this once."""


class LmrChange(BaseModel):
    """What has ended, and where in the MDP's history that stands."""

    id: int
    position: int
    name: str | None = None


class LmrShown(BaseModel):
    """An LMR."""

    id: int
    name: str
    created_at: str
    asked_at: str | None = Field(description="when it last asked for its feed, to some seconds")
    paused: bool = Field(description="its feed is held back")
    subscriptions: int
    resources: int = Field(description="in its closure")
    roots: int = Field(description="of these, selected by some rule")
    events: int = Field(description="kept in its feed")
    behind: int = Field(description="of these, not yet asked beyond")


class SubscriptionShown(BaseModel):
    """A subscription."""

    id: int
    name: str | None
    rule: str
    position: int = Field(description="of the transaction that made it what it is")


class Checksum(BaseModel):
    """The checksum of an LMR's cache."""

    position: int
    buckets: list[str]


class Proposed(BaseModel):
    """Rules that could be subscribed."""

    items: list[dict[str, Any]] = Field(
        description="each with `rule`, `selects` (how many resources now), `more` (at least so many) and `why`"
    )


class StatusQuery(Strict):
    after: int | None = Field(None, ge=0, description="answer once this position is applied")
    wait: float | None = Field(None, ge=0, le=3600, description="or after so many seconds")


class LocalUri(Strict):
    uri: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)


class LmrStatus(BaseModel):
    """How far the cache of an LMR is."""

    mdp: str
    cursor: str | None
    position: int = Field(description="of the MDP, up to which all is here")
    up_to_date: bool = Field(description="as far as was known at the last contact")
    resources: int = Field(description="in the cache")
    roots: int = Field(description="of these, selected by some rule")
    strong: int = Field(description="of these, here through strong references alone")
    local: int = Field(description="resources described by local metadata")
    taking_snapshot: bool
    last_contact: str | None
    last_error: str | None
    last_verified: str | None
    mended: int = Field(description="buckets fetched again so far")


class Counted(BaseModel):
    """How many there are."""

    count: int
    exact: bool = Field(description="false: about so many, as the database estimates")


class LmrBehind(BaseModel):
    """An LMR that has not asked for all that it was told."""

    id: int
    name: str
    events: int = Field(description="that it has not asked for, up to 10,000")
    more: bool = Field(description="there are more events than so many")
    since: str | None = Field(description="when the first of them was published, where that is still known")
    asked_at: str | None
    must_refetch: bool = Field(description="it has lost its place, and will have to take a snapshot")
    paused: bool = Field(description="its feed is held back until it is resumed")


class QueueStatus(BaseModel):
    """What waits, or is being carried out."""

    waiting: int = Field(description="jobs, up to 10,001")
    more: bool = Field(description="there are more than 10,000; the figures are of those next in turn")
    oldest_seconds: float | None = Field(description="how long the oldest of them has waited")
    by_kind: dict[str, int]
    by_priority: dict[str, int]
    dead: int = Field(description="dead letters: jobs that failed by no fault of their own, up to 10,000")


class WorkerHeard(BaseModel):
    """A worker that was heard of in the last seconds."""

    name: str = Field(description="host and process")
    since: str | None
    processes: int | None
    heard_seconds_ago: float | None = Field(description="one that was killed is told of for 15 s")


class StoreCounts(BaseModel):
    """What the store holds: counted up to 10,000, beyond that estimated."""

    documents: Counted
    resources: Counted = Field(description="names of resources, also of those only referred to or long gone")
    statements: Counted
    rules: Counted


class MdpStatus(BaseModel):
    """How an MDP is."""

    version: str = Field(description="of MDV")
    epoch: str = Field(description="this life of the MDP")
    position: int = Field(description="of the last transaction")
    last_transaction: str | None = Field(description="when that was")
    counts: StoreCounts
    lmrs: int
    behind: list[LmrBehind] = Field(description="the LMRs that are behind, the furthest first, 20 at most")
    queue: QueueStatus
    workers: list[WorkerHeard] | None = Field(description="null: Redis is away, so nothing is known of them")
    database_bytes: int


class LocalDocument(BaseModel):
    """What became of a local document."""

    document: str
    created: bool
    changed: bool
    statements: int


class Verification(BaseModel):
    """What a comparison with the MDP found."""

    position: int
    mended: list[int] = Field(description="the buckets that differed and were fetched again")


class WebhookDraft(Strict):
    url: StrictStr = Field(description="the address that is told, http or https", max_length=2000)


class WebhookShown(BaseModel):
    """A webhook."""

    id: int
    url: str
    state: Literal["active", "paused"]
    reason: str | None = Field(description="why it is paused")
    told: int = Field(description="the offset of the feed up to which the receiver was told")
    failures: int = Field(description="attempts that failed since anything was delivered")
    failing_since: str | None = Field(description="when the first of them was")
    created_at: str
    old_secret_until: str | None = Field(description="until then the secret of before the rotation signs as well")


class WebhookSecret(WebhookShown):
    """A webhook with its secret, which is shown this once."""

    secret: str = Field(description="with which the receiver checks the signature of each message")


class WebhookTrial(BaseModel):
    """What came of a message that was sent to try."""

    id: str = Field(description="its webhook-id")
    delivered: bool
    status: int | None = Field(description="that the receiver answered, if it did")
    reason: str | None = Field(description="why it was not delivered")


class DeliveryQuery(Page):
    state: Literal["waiting", "delivered", "dead"] | None = Field(None, description="only those that are so")


class DeliveryShown(BaseModel):
    """A message to a webhook, and what became of it so far."""

    id: str = Field(description="its webhook-id, the same at every attempt")
    offset: int = Field(description="what it tells: there is something new in the feed up to here")
    position: int = Field(description="of the MDP, there")
    state: Literal["waiting", "delivered", "dead"]
    attempts: int
    not_before: str | None = Field(description="of the next attempt, if it waits for one")
    status: int | None = Field(description="what the receiver answered last, if it did")
    reason: str | None = Field(description="why that was no success")
    created_at: str
    tried_at: str | None
    ended_at: str | None
