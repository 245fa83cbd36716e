"""Pydantic models of parameters (validation) and responses (OpenAPI description)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, StrictBool, StrictInt, StrictStr, StringConstraints

EXAMPLE: dict[str, Any] = {"example": "http://mdv.example/doc.rdf", "format": "iri"}


NoNul = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]


class Strict(BaseModel):
    """Parameters. Unknown names are rejected, so that a typo is not taken for a default."""

    model_config = ConfigDict(extra="forbid")


class ListQuery(Strict):
    """Parameters of all lists."""

    after: str | None = Field(None, description="the `next` of the previous page", max_length=2048)
    limit: int = Field(100, ge=1, le=1000, description="maximum number of items")


class LimitQuery(Strict):
    limit: int = Field(100, ge=1, le=1000, description="maximum number of items")


class DocumentQuery(ListQuery):
    uri: str | None = Field(
        None, description="the document; without it, a page of all documents", json_schema_extra=EXAMPLE
    )


Reactions = Literal["on", "off"]
REACTIONS = "`off`: no event-condition-action rules are run; requires a token without URI prefixes"


class DocumentUri(Strict):
    uri: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)
    dry_run: bool = Field(False, description="report what would happen without changing anything")
    eca: Reactions = Field("on", description=REACTIONS)


class HistoryQuery(ListQuery):
    uri: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)
    version: int | None = Field(None, ge=1, le=2_147_483_647, description="return this version as RDF")


class AtomsQuery(ListQuery):
    uri: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)


class ResourceQuery(ListQuery):
    uri: str | None = Field(
        None, description="one resource", json_schema_extra=EXAMPLE | {"example": "http://mdv.example/doc.rdf#host"}
    )
    class_: str | None = Field(
        None,
        alias="class",
        description="instances of this class and its subclasses",
        json_schema_extra={"example": "CycleProvider"},
    )


class SearchQuery(ListQuery):
    q: str = Field(
        description="words of labels, values and URIs, or the start of a URI", json_schema_extra={"example": "passau"}
    )
    class_: str | None = Field(
        None,
        alias="class",
        description="only instances of this class and its subclasses",
        json_schema_extra={"example": "CycleProvider"},
    )
    after: str | None = Field(None, description="the `next` of the previous page", max_length=7000)


class FoundText(BaseModel):
    """A value that contains words of the query, at most 300 characters of it."""

    property: str
    value: str
    lang: str | None = Field(None, description="language; absent if there is none")


class SearchItem(BaseModel):
    """A found resource."""

    uri: str
    classes: list[str]
    label: str | None = Field(description="its label in a language of `Accept-Language`, if it has a label")
    matches: list[FoundText] = Field(description="values that contain words of the query, at most 3")


class ClassCount(BaseModel):
    """A class among the results."""

    class_: str = Field(alias="class")
    count: int


class SearchAnswer(BaseModel):
    """A page of search results."""

    items: list[SearchItem]
    next: str | None
    classes: list[ClassCount] = Field(
        description="first page only: the classes of up to 500 results, at most 20, with the number of results"
    )
    classes_sampled: bool = Field(description="there are more results than `classes` counts")
    position: int = Field(description="if `up_to_date`, all changes up to this position are searched")
    up_to_date: bool = Field(description="false if the index is being updated and recent changes may be missing")


class QueryRequest(Strict):
    query: str = Field(description="query text, at most 8 KB")
    limit: StrictInt | None = Field(
        None, ge=1, le=10_000, description="maximum number of rows, or of resources per page (at most 1,000)"
    )
    after: str | None = Field(None, description="for resources: the `next` of the previous page", max_length=8192)


class ProgramBody(Strict):
    code: StrictStr = Field(description="text of the program in ReAL, at most 64 KB")
    mode: Literal["read", "sandbox", "run"] = Field(
        "sandbox",
        description="read: a change outside { } is an error; sandbox: changes are kept in memory, reported and dropped;"
        " run: documents are changed",
    )
    binding: dict[str, dict[str, Any]] = Field({}, description="terms of variables, by name without `?`")
    prefixes: dict[str, StrictStr] = Field({}, description="URIs of prefixes that the program uses")
    into: StrictStr | None = Field(
        None, description="document that additions in the default context go to", min_length=1, max_length=2048
    )
    limit: StrictInt | None = Field(None, ge=1, le=1_000_000, description="the program ends after this many solutions")


class ProcessStarted(BaseModel):
    """A process that was started, or asked to stop."""

    process: str
    state: str
    warnings: list[dict[str, Any]]


class ProcessShown(BaseModel):
    """A process: a program in the mode run."""

    process: str = Field(description="its IRI, which also names its activity document")
    id: str = Field(description="the part of its IRI that distinguishes it")
    number: int
    root: str = Field(description="the process that it descends from, or itself")
    parent: str | None = Field(description="the process that spawned it")
    action: str | None = Field(description="the action that SPAWN started")
    state: str = Field(description="ready, waiting, calling, full, done, failed or stopped")
    stalled: bool = Field(description="only waiting processes may write what it waits for")
    caller: str
    into: str
    position: int
    solutions: int
    read: int = Field(description="solutions that were read")
    effects: dict[str, int] = Field(description="numbers of statements that its slices added and removed")
    steps: int
    slices: int
    conflicts: int = Field(description="slices that were run again, because what they read had changed")
    seconds: float = Field(description="of CPU")
    awaits: list[dict[str, Any]] = Field(description="what it waits for")
    problem: dict[str, Any] | None
    stop_asked: bool
    message: dict[str, Any] | None = Field(description="of STOP")
    created_at: str
    ran_at: str | None
    wake_at: str | None
    ended_at: str | None


class ProgramCheckBody(Strict):
    code: StrictStr = Field(description="text of the program in ReAL, at most 64 KB")
    inputs: list[StrictStr] = Field([], description="names of variables that are bound before it runs")
    prefixes: dict[str, StrictStr] = Field({}, description="URIs of prefixes that the program uses")


class ProgramChecked(BaseModel):
    """A program that is valid."""

    warnings: list[dict[str, Any]] = Field(description="each with `message`, `span` and possibly `hint`")


class ProgramExplainBody(ProgramCheckBody):
    into: StrictStr | None = Field(
        None, description="document that additions in the default context go to", min_length=1, max_length=2048
    )


class ProgramExplained(BaseModel):
    """What a program would do. `subject`, `property` and `object` are null where they can be anything."""

    position: int
    steps: list[dict[str, Any]] = Field(
        description="parts of the program in the order of its text: `level`, `operation`, `text`, `span` or `action`"
        " (whose body it is in); of a read also `access`, `repeats` (for each solution of what is before it), `count`"
        " (statements that match its constants, up to 1,000) and `more`"
    )
    may_read: list[dict[str, Any]] = Field(
        description="statements that it may read: `documents` (null: all), `subject`, `property`, `object`"
    )
    may_write: list[dict[str, Any]] = Field(
        description="statements that it may change: `change`, `document` (null: any), `subject`, `property`, `object`"
    )
    calls: list[str] = Field(description="actions that it may call; their bodies are included")
    starts: list[str] = Field(description="actions that it may start as processes; their bodies are not included")
    complete: bool = Field(description="false: it may read or write more than is listed; `gaps` says why")
    gaps: list[str]
    warnings: list[dict[str, Any]]


class RealActionsQuery(ListQuery):
    holding: NoNul | None = Field(None, description="only actions whose URI contains this text", max_length=2048)


class RealActionShown(BaseModel):
    """A stored action."""

    uri: str
    label: str | None = None
    documents: list[str] = Field(description="documents with its body, at most 20")
    inputs: list[str] = Field([], description="names of the variables that a call binds")
    outputs: list[str] = Field([], description="names of the variables that a call returns")
    code: str | None = Field(description="text of the body; null if it cannot be found")
    problem: str | None = Field(description="why it cannot be called")


class TraceQuery(Strict):
    document: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)


class StatementEdits(BaseModel):
    """Statements to remove from a document and to add to it, each as `[subject, property, term]`."""

    add: list[list[Any]] = Field([], description="statements to add")
    remove: list[list[Any]] = Field([], description="statements to remove")


class DanglingReference(BaseModel):
    """A reference to a resource that a deletion would remove."""

    document: str = Field(description="the document with the reference")
    resource: str
    property: str
    target: str


class Registration(BaseModel):
    """Result of a registration, an edit or a deletion."""

    document: str
    version: int
    position: int = Field(description="position of the change in the MDP's history")
    inserted: int = Field(description="resources that did not exist before")
    updated: int = Field(description="resources with visible changes")
    deleted: int = Field(description="resources that no document describes anymore")
    unchanged: int = Field(description="resources of the document that did not change")
    matched: int = Field(description="resources that newly match a rule")
    lmrs: int = Field(description="number of notified LMRs")
    present: bool | None = Field(
        None, description="only of an edit: false if the document lost its last statement and is deleted"
    )
    created: bool
    dry_run: bool | None = None
    told: list[str] | None = Field(None, description="dry run only: the LMRs that would be notified, at most 100")
    etag: str | None = Field(None, description="with a backbone, the `ETag`: version and digest of the document")
    token: str | None = Field(None, description="with a backbone, names the change for `GET /status?after=`")
    replicas: int | None = Field(None, description="with `Prefer: replicas=N`: other members that have the change")
    fired: int | None = Field(None, description="how often event-condition-action rules fired; always in a dry run")
    run: int | dict[str, Any] | None = Field(None, description="the run of rules; for a dry run, its tree")
    references: list[DanglingReference] | None = Field(
        None,
        description="only of the dry run of a deletion: references of other documents to resources that would be"
        " deleted, at most 100",
    )


class UpdateQuery(Strict):
    graph: str | None = Field(
        None,
        description="the document that insertions go to; the default is urn:mdv:updates",
        json_schema_extra=EXAMPLE,
        min_length=1,
    )
    dry_run: bool = Field(False, description="report what would happen without changing anything")
    eca: Reactions = Field("on", description=REACTIONS)


class TextFlaw(BaseModel):
    """A place in a text, with what is wrong there or what was read differently than written."""

    message: str
    line: int | None = None
    column: int | None = None
    length: int | None = Field(None, description="number of characters from `column` on")
    hint: str | None = None


class EcaRuleWarning(TextFlaw):
    """Irregular notation with its place, or a finding of the analysis with its `code` and the rules concerned."""

    code: Literal["not-well-defined", "does-not-commute", "may-not-terminate"] | None = None
    rules: list[str] = Field([], description="the other rules concerned, at most three")
    count: int = Field(0, description="number of all rules concerned")


class UpdateDone(BaseModel):
    """Result of an update. `inserted`, `deleted` and `updated` count statements that its own actions changed."""

    position: int = Field(description="position of the change in the MDP's history")
    inserted: int
    deleted: int
    updated: int
    run: int | dict[str, Any] | None = Field(description="the run of rules; for a dry run, its tree")
    fired: int = Field(description="how often rules fired")
    matched: int = Field(description="resources that newly match a subscription rule")
    lmrs: int = Field(description="number of notified LMRs")
    warnings: list[TextFlaw]
    token: str | None = Field(None, description="with a backbone, names the change for `GET /status?after=`")
    replicas: int | None = Field(None, description="with `Prefer: replicas=N`: other members that have the change")
    dry_run: bool | None = None


"""A text that the database can store."""


class EcaText(Strict):
    text: StrictStr = Field(description="text of the rule, at most 16 KB")


RuleSetName = Annotated[
    str,
    StringConstraints(
        strict=True, min_length=1, max_length=100, pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$"
    ),
]


class PostedEcaRule(EcaText):
    set: RuleSetName = Field("main", description="rule set; its insertions go to the document urn:mdv:eca:SET")
    state: Literal["active", "shadow", "disabled"] = "active"


class PostedEcaRules(RootModel[PostedEcaRule | list[PostedEcaRule]]):
    """One rule, or a list of rules that are added in one transaction."""


class EcaRuleAdded(BaseModel):
    """An added or replaced rule. For a list, the response has `items` and `position`."""

    id: int | str | None = Field(
        description="of a global rule of a federation, SUPERPEER.NUMBER; null at a peer: its superpeer numbers it"
    )
    name: str | None
    text: str
    normal: str = Field(description="the rule with all names resolved")
    warnings: list[EcaRuleWarning]
    position: int


class EcaRuleChanged(BaseModel):
    """A rule whose state was changed, or that was removed."""

    id: int | str
    position: int
    warnings: list[TextFlaw]


EcaState = Literal["active", "shadow", "disabled", "quarantined"]


class EcaRuleShown(BaseModel):
    """A rule with its counts."""

    id: int
    name: str | None
    set: str
    state: EcaState
    reason: str | None = Field(description="why it is quarantined")
    text: str
    normal: str
    position: int = Field(description="position of the transaction that last changed it")
    created_at: str
    by: str | None
    fired: int
    failed: int
    last_fired: str | None
    documents: list[str] | None = Field(description="prefixes of the documents that it may write; null: no limit")
    resources: list[str] | None = Field(description="prefixes of the resources that it may describe; null: no limit")


class EcaRulesQuery(ListQuery):
    set: NoNul | None = Field(None, description="only rules of this set")
    state: EcaState | None = Field(None, description="only rules in this state")


class EcaDryRun(Strict):
    update: StrictStr | None = Field(None, description="actions of RDFTL")
    graph: StrictStr | None = Field(None, description="the document that insertions of the update go to")
    document: StrictStr | None = Field(None, description="text of a document")
    uri: StrictStr | None = Field(None, description="URI of the document")
    media_type: StrictStr | None = Field(None, description="syntax of the document; the default is application/rdf+xml")
    rules: list[PostedEcaRule] = Field([], description="draft rules", max_length=1000)


class ProcessesQuery(ListQuery):
    state: Literal["live", "ready", "waiting", "calling", "full", "done", "failed", "stopped"] | None = Field(
        None, description="only processes in this state; live: all that have not ended"
    )
    root: str | None = Field(None, description="only processes that descend from this one, with itself")
    caller: str | None = Field(None, description="only processes of this caller, such as `token ci#7`")


class StopQuery(Strict):
    message: str | None = Field(None, description="text for its activity document", max_length=2000)
    family: bool = Field(False, description="stop all processes that descend from the same one")


class EcaRunsQuery(ListQuery):
    rule: str | None = Field(None, description="name or ID of a rule: only runs in which it fired or failed")
    outcome: Literal["done", "refused", "compensated"] | None = Field(None, description="only runs with this outcome")
    position: int | None = Field(None, ge=0, le=2**63 - 1, description="only the run of this transaction")


class EcaRunShown(BaseModel):
    """A change in which rules fired, or an update."""

    id: int
    position: int | None = Field(description="null if the change was refused")
    at: str
    cause: str
    subject: str | None = Field(description="the document that was registered or updated")
    outcome: str
    fired: int
    by: str | None
    parent_run: int | None = Field(description="of a detached copy: the run in which its rule fired")
    parent_copy: int | None = Field(description="the number of the detached copy there")
    compensated: list[int] = Field(description="copies that were compensated; -1 is the transaction itself")


class Compensated(BaseModel):
    """Result of a compensation. `undone`, `skipped`: numbers of changes."""

    position: int
    run: int | None = Field(description="the run of the compensation; null if there was nothing left to undo")
    runs: list[int] = Field(description="the runs that were compensated, at least in part")
    undone: int
    skipped: int = Field(description="changes whose result is not there unchanged")
    not_undone: list[dict[str, Any]] = Field(description="the first of these")
    readers: int = Field(description="copies of later transactions that were compensated, too")
    readers_left: int
    matched: int
    lmrs: int


class EcaLogQuery(ListQuery):
    resource: NoNul | None = Field(None, description="only statements about this resource", min_length=1)
    rule: str | None = Field(None, description="name or ID of a rule")
    document: NoNul | None = Field(None, description="only changes of this document", min_length=1)
    run: int | None = Field(None, ge=1, le=2**63 - 1, description="only changes of this run")


class LoggedChangeShown(BaseModel):
    """A statement that a rule or an update inserted or deleted."""

    id: int
    position: int
    at: str | None
    run: int
    step: int
    rule: str | None
    rule_id: int | None = Field(description="null for an action of an update")
    delta: dict[str, Any] | None = Field(description="what triggered the rule")
    added: bool
    document: str
    statement: list[Any] = Field(description="[subject, property, term]")
    text: str = Field(description="who made the change and why")


class Accepted(BaseModel):
    """A change that has not finished."""

    job: str
    state: str
    document: str


class JobState(BaseModel):
    """The state of a job."""

    id: str
    kind: str
    state: Literal["queued", "running", "done", "failed"]
    document: str
    created_at: str
    ended_at: str | None
    attempts: int
    priority: int
    request: str | None = Field(description="the X-Request-ID of the submitting request")
    next_attempt_at: str | None = Field(description="time of the next attempt after an internal error")
    dead: bool = Field(description="dead letter: all attempts failed with internal errors; it can be retried")
    result: Registration | dict[str, Any] | None
    problem: dict[str, Any] | None


class SchemaPut(Strict):
    dry_run: bool = Field(False, description="report what would happen without changing anything")
    force: bool = Field(False, description="in a backbone: also if a member is away; what breaks there is suspended")


class SchemaTrial(Strict):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    text: str = Field(alias="schema", description="the schema as Turtle")
    hold: StrictBool = Field(False, description="validate new documents also by this schema for a minute")


class NewLead(Strict):
    member: str
    force: StrictBool = Field(False, description="although this MDP is not the lead, because the lead is lost")


class ChangedAspect(BaseModel):
    """A changed aspect of a class or property."""

    aspect: Literal["superclasses", "domain", "range", "superproperties", "reference", "values", "namespace", "world"]
    before: list[str] = Field(
        description="names as in rules; `reference` is strong or weak, `values` is one or several"
    )
    after: list[str]


class ChangedTerm(BaseModel):
    """A changed term of the schema."""

    what: Literal["world", "class", "property", "datatype", "prefix"]
    name: str = Field(description="name as in rules")
    iri: str | None = Field(description="the IRI of the name; for a prefix, its namespace")
    change: Literal["added", "removed", "changed"]
    aspects: list[ChangedAspect]


class ConcernedLmr(BaseModel):
    """An LMR that receives changed resources, not only the schema."""

    lmr: str
    matched: int
    unmatched: int
    sent: int
    left: int


class SchemaChange(BaseModel):
    """The new schema (or, for a dry run, the schema that would be active) and its effects."""

    version: int
    position: int
    changed: bool
    classes: int
    properties: int
    changes: list[ChangedTerm] = Field(description="changed terms, at most 500")
    changes_left_out: int
    counts: dict[str, dict[str, int]] = Field(description="number of changes by `what` and `change`")
    rules_anew: int = Field(description="rules with a different decomposition")
    matched: int = Field(description="resources that newly match rules of an LMR")
    unmatched: int = Field(description="resources that no longer match rules of an LMR")
    sent: int = Field(description="resources sent to LMRs")
    left: int = Field(description="resources that leave the cache of an LMR")
    lmrs: int = Field(description="number of notified LMRs; all receive the schema")
    concerned: list[ConcernedLmr] = Field(description="the LMRs that receive changed resources, at most 100")
    dry_run: bool | None = None
    token: str | None = Field(None, description="with a backbone, names the change for `GET /status?after=`")


class FoundByRule(BaseModel):
    resource: str
    rule: int = Field(description="id of the atomic rule")


class TracedRow(FoundByRule):
    text: str = Field(description="text of the rule")


class FilterTrace(BaseModel):
    """The iterations of the filter and the results of the end rules."""

    document: str
    iterations: list[list[TracedRow]]
    results: list[FoundByRule]
    truncated: bool


class ExplainRuleRequest(Strict):
    rule: str = Field(description="rule text, at most 8 KB")
    sql: StrictBool = Field(False, description="include the SQL")


class EcaCheckRequest(Strict):
    text: str = Field(description="the text of one or several event-condition-action rules, at most 16 KB")
    replaces: str | None = Field(None, description="name or ID of the rule that the text replaces", max_length=1000)


class EcaAnalysisQuery(Strict):
    mode: Literal["paper", "strict"] = Field(
        "strict", description="the tests of the paper, or tests that miss no dependency"
    )


class EcaGraphQuery(ListQuery, EcaAnalysisQuery):
    """Parameters of the triggering graph."""


class EcaUnitShown(BaseModel):
    """Rules that are analysed together: one rule, or many that differ only in their constants."""

    number: int
    rules: list[str] = Field(description="names of rules, or `rule ID`; of many rules, the first")
    count: int


class EcaReason(BaseModel):
    """Two accesses whose order matters."""

    first_rule: str
    first_does: str
    second_rule: str
    second_does: str
    triple: str = Field(description="the schema triple that both access")
    text: str


class EcaFinding(BaseModel):
    """A test that fails. I1, I2: the order of the copies of one rule. C1, C2: the order of two rules."""

    test: Literal["I1", "I2", "C1", "C2"]
    units: list[EcaUnitShown]
    reason: EcaReason


class EcaCycle(BaseModel):
    """Rules that may trigger each other, or one that may trigger itself."""

    units: list[EcaUnitShown] = Field(description="the first 20")
    count: int
    termination: Literal["terminates", "may not terminate"]
    reason: EcaReason | None


class EcaWarning(BaseModel):
    """A warning of the analysis."""

    code: Literal["not-well-defined", "does-not-commute", "may-not-terminate"]
    message: str
    rules: list[str] = Field(description="the rules concerned, at most three")
    count: int


class EcaRuleAnalysis(BaseModel):
    """The analysis of a rule among the active rules."""

    well_defined: bool
    commutes: bool
    findings: list[EcaFinding]
    more: int = Field(description="number of further findings")
    cycles: list[EcaCycle]


class EcaRuleTemplate(BaseModel):
    """The rule with slots instead of constants. `rules`: active rules with the same template."""

    text: str
    rules: int


class EcaCheckedRule(BaseModel):
    """A rule that is correct."""

    name: str | None
    text: str
    normal: str
    warnings: list[dict[str, Any]] = Field(description="irregular notation, with its place in the text")
    template: EcaRuleTemplate
    triggers: list[EcaUnitShown] = Field(description="what it may trigger directly, at most 20")
    triggered_by: list[EcaUnitShown] = Field(description="what may trigger it directly, at most 20")
    analysis: dict[str, EcaRuleAnalysis] = Field(description="by mode: paper and strict")
    analysis_warnings: list[EcaWarning]


class EcaChecked(BaseModel):
    """The check of a text without errors."""

    rules: list[EcaCheckedRule]
    compared_with: int = Field(description="active rules that were analysed")
    left_out: int = Field(description="active rules that were not analysed, because there are too many templates")


class EcaGraphUnit(EcaUnitShown):
    """A node of the triggering graph."""

    event: str
    coupling: Literal["Immediate", "Deferred", "Detached"]
    triggers: list[int] = Field(description="the numbers of the units that it may trigger directly")


class EcaAnalysisHead(BaseModel):
    mode: Literal["paper", "strict"]
    rules: int = Field(description="number of active rules")
    units: int
    left_out: int = Field(description="active rules that were not analysed, because there are too many templates")


class EcaGraph(EcaAnalysisHead):
    """A page of the triggering graph, with all cycles."""

    items: list[EcaGraphUnit]
    cycles: list[EcaCycle]
    next: str | None


class EcaAnalysis(EcaAnalysisHead):
    """The analysis of the active rules."""

    instances: list[EcaFinding] = Field(description="rules that are not well defined")
    pairs: list[EcaFinding] = Field(description="pairs that do not commute, at most 1,000")
    pair_count: int
    cycles: list[EcaCycle]


class FilterRule(BaseModel):
    """The row of a triggering rule in the table of its operator."""

    table: str
    class_: str = Field(alias="class")
    property: str | None
    value: str | None


class AtomicRule(BaseModel):
    """A triggering rule or join rule of a decomposed rule."""

    id: int | str = Field(description="id; a letter if the atomic rule would be new")
    text: str
    class_: str = Field(alias="class", description="class of the registered resources")
    kind: Literal["triggering", "join"]
    exists: bool
    uses: int = Field(description="number of join rules and subscription rules that use it")
    inputs: list[int | str] = Field(description="join rules only: the atomic rules that it joins")
    filter_rule: FilterRule | None = Field(description="triggering rules only")


class RuleGroup(BaseModel):
    """Join rules with the same where clause and classes."""

    id: int | None = Field(description="null if the group would be new")
    text: str
    members: int = Field(description="number of join rules in the group")
    rules: list[int | str] = Field(description="the join rules of this rule")


class RuleDriver(BaseModel):
    """The driving predicate: the triggering rule that finds the rule."""

    rule: int | str
    text: str
    table: str


class WholeRuleGroup(BaseModel):
    """Rules that differ only in their constants and are evaluated together."""

    id: int | None = Field(description="null if the group would be new")
    text: str
    members: int = Field(description="number of rules in the group")
    driver: RuleDriver | None = Field(description="null if the rule has no constant")


class RuleSql(BaseModel):
    """SQL of the filter for the whole group, and of a full evaluation."""

    filter: str
    evaluation: str


class RuleConjunction(BaseModel):
    """The decomposition of one conjunction of a rule."""

    normal: str
    atomic_rules: list[AtomicRule]
    tree: str = Field(description="the dependency tree as text")
    groups: list[RuleGroup]
    whole_group: WholeRuleGroup
    sql: RuleSql | None = Field(None, description="only if requested")


class RuleScan(BaseModel):
    """A class whose instances a change elsewhere may have to scan."""

    changed: str
    looks_at: str
    instances: int | None = Field(description="null if counting timed out")
    more: bool = Field(description="there are more than this")
    text: str


class RuleCost(BaseModel):
    """The worst-case cost of a change."""

    bounded: bool = Field(description="a change reads only resources reached by references and equal values")
    worst: int | None = Field(description="resources that one change may read; null if unknown")
    scans: list[RuleScan]
    milliseconds: float | None = Field(
        description="measured median time of a change of one stored resource; null if no resource concerns the rule"
        " or measuring takes too long"
    )
    worst_milliseconds: float | None = Field(description="the longest measured time")
    stopped: bool = Field(description="measuring was stopped: the longest time is a lower bound")
    sample: int = Field(description="number of measured resources")
    limit_milliseconds: float = Field(description="time limit of a rule in one transaction (MDV_RULE_SECONDS)")
    would_be_suspended: bool | None = Field(description="a change of one resource can exceed the limit; null: unknown")


class RuleExplained(BaseModel):
    """The explanation of a rule."""

    rule: str
    normal: str
    conjunctions: list[RuleConjunction]
    matches: int | None = Field(description="number of matching resources; null if counting timed out")
    cost: RuleCost


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str = Field(json_schema_extra={"example": "urn:mdv:problem:not-found"})
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None


class NewLmr(Strict):
    name: StrictStr = Field(description="name of the LMR", max_length=1000)


class TokenListQuery(ListQuery):
    state: Literal["valid"] | None = Field(None, description="without it, revoked and expired tokens are listed, too")


class NewToken(Strict):
    name: StrictStr = Field(description="name of the token", max_length=1000)
    role: Literal["admin", "viewer"] = Field("admin", description="an admin reads and writes, a viewer only reads")
    document_prefixes: list[StrictStr] = Field([], description="it writes only documents below these; empty: any")
    resource_prefixes: list[StrictStr] = Field([], description="it describes only resources below these; empty: any")
    expires: StrictStr | None = Field(
        None,
        description="refused from this date, time or duration from now on, in UTC; null: never",
        max_length=1000,
        json_schema_extra={"example": "90d"},
    )


class TokenShown(BaseModel):
    """A token without its secret."""

    id: int
    name: str
    role: Literal["admin", "viewer", "lmr"]
    lmr: int | None = Field(description="the LMR that it belongs to")
    document_prefixes: list[str] | None
    resource_prefixes: list[str] | None
    state: Literal["valid", "expired", "revoked"]
    created_at: str
    created_by: str | None
    expires_at: str | None
    revoked_at: str | None
    used_at: str | None = Field(description="time of last use, exact to a minute")


class TokenCreated(TokenShown):
    """A token with its secret, which is shown only once."""

    token: str


class NewSubscription(Strict):
    rule: StrictStr = Field(description="rule text, at most 8 KB")
    name: StrictStr | None = Field(
        None, description="name by which other rules of the LMR can search this rule", max_length=1000
    )


class NewSubscriptions(RootModel[NewSubscription | list[NewSubscription]]):
    """A rule to subscribe to, or a list of rules."""


class NewRule(Strict):
    rule: StrictStr = Field(description="rule text, at most 8 KB")


class FeedQuery(Strict):
    after: str | None = Field(
        None, description="the `cursor` of the previous response; without it, a snapshot", max_length=200
    )
    limit: int = Field(1000, ge=1, le=10_000, description="approximate number of events")
    wait: float = Field(0, ge=0, le=3600, description="seconds to wait for events (long poll)")
    buckets: str | None = Field(
        None, description="snapshot of these checksum buckets only, comma-separated numbers", max_length=2000
    )


class ExplainQuery(Strict):
    lmr: str = Field(
        description="name or id of the LMR", min_length=1, max_length=1000, json_schema_extra={"example": "local"}
    )
    uri: str = Field(description="the resource", json_schema_extra=EXAMPLE, min_length=1)


class ProposeRequest(Strict):
    resource: StrictStr | None = Field(None, description="a resource that the rules should select")
    class_: StrictStr | None = Field(None, alias="class", description="a class")
    values: dict[str, Any] | None = Field(
        None,
        description="conditions on its instances: property to value, list of values, or {op, value}",
        json_schema_extra={"example": {"serverPort": 5874}},
    )


class LmrCreated(BaseModel):
    """The new LMR with its token, which is shown only once."""

    id: int
    name: str
    token: str


class LmrToken(LmrCreated):
    """The new token of the LMR, which is shown only once."""


class LmrChange(BaseModel):
    """The removed LMR or subscription, and the position of the change."""

    id: int
    position: int
    name: str | None = None
    token: str | None = Field(None, description="with a backbone, names the change for `GET /status?after=`")


class AdoptionRequest(Strict):
    """What an LMR has that wants another home."""

    term: StrictInt = Field(description="greater with each attempt of the LMR", ge=1, le=2**32)
    vector: dict[str, StrictInt] = Field({}, description="the changes that its cache may have, by life")
    buckets: list[StrictStr] = Field(description="the checksum of its cache", min_length=256, max_length=256)
    accept_older: StrictBool = Field(False, description="do not wait for changes that this MDP lacks")
    wait: float = Field(0, description="seconds to wait for them", ge=0, le=60)


class Adoption(BaseModel):
    """The new home of an LMR."""

    home: str = Field(description="name of this member of the backbone")
    term: int = Field(description="number of the adoption")
    position: int = Field(description="of the snapshot of the buckets that differ")
    cursor: str = Field(description="of the first page of this snapshot; the feed continues after its last page")
    buckets: list[int] = Field(description="the buckets that differ")
    token: str | None = Field(None, description="names the change for `GET /status?after=`")
    problems: list[str] = Field(description="rules that are not active here, with the reasons")


class LmrShown(BaseModel):
    """An LMR and its progress."""

    id: int
    name: str
    created_at: str
    asked_at: str | None = Field(description="time of its last feed request, accurate to a few seconds")
    paused: bool = Field(description="the feed is paused")
    by: str | None = Field(description="who created it: a user or a token; null if not recorded")
    subscriptions: int
    resources: int = Field(description="resources in its closure")
    roots: int = Field(description="of these, selected by a rule")
    events: int = Field(description="events retained in its feed")
    behind: int = Field(description="of these, not yet read")
    home: str | None = Field(description="the member of the backbone where it is at home; null: here")
    term: int = Field(description="number of its last adoption")


class SuspensionShown(BaseModel):
    """Reason and time of a suspension."""

    reason: str
    seconds: float | None = Field(description="the time limit that the rule exceeded")
    position: int = Field(description="position of the transaction that suspended the rule")
    at: str = Field(description="time of that transaction")


class SubscriptionShown(BaseModel):
    """A subscription. While it is suspended, its rule is not evaluated and its matches do not change."""

    id: int
    name: str | None
    rule: str
    position: int = Field(description="position of the transaction that created or last changed it")
    by: str | None = Field(description="who wrote its rule: a user, a token or the LMR; null if not recorded")
    state: Literal["active", "suspended"]
    suspended: SuspensionShown | None = Field(None, description="only if suspended")
    token: str | None = Field(None, description="of a change, with a backbone: for `GET /status?after=`")


class Checksum(BaseModel):
    """The checksum of an LMR's cache."""

    position: int
    buckets: list[str]


class Proposed(BaseModel):
    """Proposed rules."""

    items: list[dict[str, Any]] = Field(
        description="each with `rule`, `selects` (number of matches), `more` (there are at least that many) and `why`"
    )


class StatusQuery(Strict):
    after: str | None = Field(
        None, description="answer when this position, or the change of this token, is applied", max_length=100
    )
    wait: float | None = Field(None, ge=0, le=3600, description="or after this many seconds")


class LocalUri(Strict):
    uri: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)


class SuspendedRuleShown(BaseModel):
    """A suspended rule: its matches may be out of date."""

    rule: int
    reason: str


class LmrStatus(BaseModel):
    """The state of the cache of an LMR."""

    mdp: str
    cursor: str | None
    position: int = Field(description="MDP position up to which all transactions are applied")
    up_to_date: bool = Field(description="true if nothing was missing at the last contact")
    resources: int = Field(description="resources in the cache")
    roots: int = Field(description="of these, selected by a rule")
    strong: int = Field(description="of these, reached only over strong references")
    local: int = Field(description="resources with local metadata")
    taking_snapshot: bool
    last_contact: str | None
    last_error: str | None
    last_verified: str | None
    mended: int = Field(description="buckets repaired since the start")
    suspended: list[SuspendedRuleShown] = Field(description="suspended rules of this LMR as of `position`, at most 100")
    suspended_count: int
    mdps: list[str] = Field(description="URLs of the MDPs that can be its home")
    vector: dict[str, int] = Field(description="changes of the backbone that are applied, by life")
    term: int = Field(description="number of the last attempt to get another home")
    adoptions: list[dict[str, Any]] = Field(description="the last changes of its home, newest first")
    reached: bool | None = Field(None, description="with `after`: the position or change is applied")


class Counted(BaseModel):
    """A count that may be an estimate."""

    count: int
    exact: bool = Field(description="false: an estimate of the database")


class LmrBehind(BaseModel):
    """An LMR with unread events."""

    id: int
    name: str
    events: int = Field(description="number of unread events, counted up to 10,000")
    more: bool = Field(description="there are more events than counted")
    since: str | None = Field(description="when the oldest of them was published, if known")
    asked_at: str | None
    must_refetch: bool = Field(description="its cursor is too old: it has to take a snapshot")
    paused: bool = Field(description="the feed is paused until it is resumed")


class QueueStatus(BaseModel):
    """Queued and running jobs."""

    waiting: int = Field(description="number of jobs, counted up to 10,001")
    more: bool = Field(description="there are more than 10,000; the numbers cover the next ones only")
    oldest_seconds: float | None = Field(description="age of the oldest job")
    by_kind: dict[str, int]
    by_priority: dict[str, int]
    dead: int = Field(description="dead letters, counted up to 10,000")


class WorkerHeard(BaseModel):
    """A worker that sent a heartbeat recently."""

    name: str = Field(description="host and process id")
    since: str | None
    processes: int | None
    heard_seconds_ago: float | None = Field(
        description="seconds since the last heartbeat; a killed worker is listed for 15 s"
    )


class StoreCounts(BaseModel):
    """Sizes of the store, exact up to 10,000 and estimated beyond."""

    documents: Counted
    resources: Counted = Field(description="resource names, including those that are only referenced or were deleted")
    statements: Counted
    rules: Counted


class MdpStatus(BaseModel):
    """The status of an MDP."""

    version: str = Field(description="version of MDV")
    epoch: str = Field(description="epoch of the MDP; changes when it is restored from a backup")
    position: int = Field(description="position of the last transaction")
    last_transaction: str | None = Field(description="time of the last transaction")
    counts: StoreCounts
    rules_suspended: int = Field(description="rules that are suspended because they exceeded the time limit")
    lmrs: int
    behind: list[LmrBehind] = Field(description="LMRs with unread events, the furthest behind first, at most 20")
    queue: QueueStatus
    workers: list[WorkerHeard] | None = Field(description="null if Redis is unavailable")
    database_bytes: int
    reached: bool | None = Field(None, description="with `after`: the change of the token is here")


class LocalDocumentResult(BaseModel):
    """The result of a change of a local document."""

    document: str
    created: bool
    changed: bool
    statements: int


class Verification(BaseModel):
    """The result of a comparison with the MDP."""

    position: int
    mended: list[int] = Field(description="buckets that differed and were fetched again")


class NewWriteLock(Strict):
    """The statements of a lock. A part that is absent stands for any."""

    document_prefix: StrictStr | None = Field(None, description="beginning of the URIs of documents", max_length=2048)
    subject: StrictStr | None = Field(None, description="URI of the subject", max_length=2048)
    property: StrictStr | None = Field(None, description="URI of the property", max_length=2048)
    object: dict[str, Any] | None = Field(None, description="term, as in the feed")


class WriteLockShown(BaseModel):
    """A lock: statements that programs must not change."""

    id: int
    document_prefix: str | None
    subject: str | None
    property: str | None
    object: dict[str, Any] | None
    by: str | None = Field(description="who added it")
    created_at: str


class NewWebhook(Strict):
    url: StrictStr = Field(description="URL to notify, http or https", max_length=2000)


class WebhookShown(BaseModel):
    """A webhook."""

    id: int
    url: str
    state: Literal["active", "paused"]
    reason: str | None = Field(description="reason for the pause")
    told: int = Field(description="feed offset up to which the receiver was notified")
    failures: int = Field(description="failed attempts since the last delivery")
    failing_since: str | None = Field(description="time of the first of these failures")
    created_at: str
    old_secret_until: str | None = Field(description="until then, messages are also signed with the previous secret")


class WebhookSecret(WebhookShown):
    """A webhook with its secret, which is shown only once."""

    secret: str = Field(description="key for verifying the signatures of messages")


class WebhookTrial(BaseModel):
    """The result of a test message."""

    id: str = Field(description="webhook-id of the message")
    delivered: bool
    status: int | None = Field(description="HTTP status of the receiver, if it answered")
    reason: str | None = Field(description="reason for the failure")


class DeliveryQuery(ListQuery):
    state: Literal["waiting", "delivered", "dead"] | None = Field(None, description="only messages in this state")


class DeliveryShown(BaseModel):
    """A message to a webhook and its state."""

    id: str = Field(description="webhook-id of the message, the same for all attempts")
    offset: int = Field(description="the feed has new events up to this offset")
    position: int = Field(description="MDP position of that offset")
    state: Literal["waiting", "delivered", "dead"]
    attempts: int
    not_before: str | None = Field(description="time of the next attempt, if any")
    status: int | None = Field(description="last HTTP status of the receiver, if it answered")
    reason: str | None = Field(description="reason for the last failure")
    created_at: str
    tried_at: str | None
    ended_at: str | None


class MdpStatusQuery(Strict):
    after: str | None = Field(None, description="token of a change at any MDP of the backbone", max_length=100)
    wait: float = Field(0, ge=0, le=60, description="seconds to wait for that change")


class NewBackbone(Strict):
    name: StrictStr = Field(description="name of this MDP in the backbone", json_schema_extra={"example": "m1"})
    url: StrictStr = Field(description="URL at which the other members reach this MDP")
    mode: Literal["orset", "cset"] = Field("orset", description="replicated set; it cannot be changed later")


class BackboneEntry(Strict):
    """How this MDP joins a backbone."""

    name: StrictStr = Field(description="name of this MDP in the backbone", json_schema_extra={"example": "m2"})
    url: StrictStr = Field(description="URL at which the other members reach this MDP")
    code: StrictStr = Field(description="code of the invitation", max_length=4096)
    merge: StrictBool = Field(False, description="register the documents of this MDP in the backbone")


class BackboneExit(Strict):
    force: StrictBool = Field(
        False, description="true: forget the backbone without asking the others, for example after a removal"
    )


class BackboneLeft(BaseModel):
    """The backbone that this MDP has left. Its documents remain."""

    id: str
    name: str = Field(description="name that this MDP had in the backbone")


class NewBackboneMember(Strict):
    name: StrictStr = Field(description="name of the new member", json_schema_extra={"example": "m2"})
    url: StrictStr = Field(description="URL at which the others reach it")
    key: StrictStr = Field(description="its public Ed25519 key, base64url")
    life: StrictStr = Field(description="its life", min_length=1, max_length=100)
    code: StrictStr | None = Field(
        None, description="code of the invitation; or in the header `Authorization: Bearer CODE`", max_length=4096
    )
    documents: StrictInt = Field(0, ge=0, description="number of documents that the new member has")
    merge: StrictBool = Field(False, description="true: its documents become part of the backbone")


class MemberChange(Strict):
    paused: StrictBool = Field(description="true: nothing is pulled from this member")


class BackboneInvitationShown(BaseModel):
    """The code of an invitation. It is shown once."""

    code: str = Field(description="for one new member: `mdv peer join CODE`")
    expires: int = Field(description="when it expires, in seconds since 1970")


class BackboneMemberShown(BaseModel):
    """A member, as this MDP sees it."""

    name: str
    url: str
    key: str = Field(description="its public Ed25519 key, base64url")
    life: str | None = Field(description="its present life: the history of its database")
    state: str = Field(description="active, checking, returning, leaving, lapsed or unknown")
    paused: bool = Field(description="true: this MDP pulls nothing from it")
    last_contact: float | None = Field(None, description="last answer, in seconds since 1970")
    error: str = Field("", description="why the last request failed")
    clock_skew: float | None = Field(None, description="seconds by which its clock is ahead")
    version: str | None = Field(None, description="version of MDV there, if it is known")
    transport: str | None = Field(None, description="how its operations arrive: http or postgres")
    lag: int | None = Field(None, description="operations that it could send and that are missing here")
    behind_us: int | None = Field(None, description="operations that are here and that it had not reported yet")


class BackboneShown(BaseModel):
    """The backbone, as this MDP sees it."""

    id: str
    mode: str = Field(description="orset or cset")
    name: str = Field(description="name of this MDP")
    life: str = Field(description="life of this MDP")
    lead: str = Field(description="name of the member that decides on members and the schema")
    term: int
    state: str = Field(description="active; checking after a start; returning in a new life")
    members: list[BackboneMemberShown]
    vector: dict[str, int] = Field(description="last operation of each life that is applied here")
    lag: int = Field(description="operations that others have and that are missing here")
    lag_seconds: float = Field(description="how long they have been missing")
    waiting: int = Field(description="operations that wait for others")
    forked: list[str] = Field(description="lives that two databases have continued")
    diverged: list[str] = Field(description="documents that differ from those of others, at most 1,000")
    replicating: bool = Field(description="true: `mdv replicate` is running")
    log_bytes: int = Field(description="size of the operations that some member does not have yet")
    version: str = Field(description="version of MDV here")


class NewFederation(Strict):
    """How this MDP becomes a superpeer."""

    name: StrictStr = Field(description="name of this superpeer", json_schema_extra={"example": "lib-a"})
    url: StrictStr | None = Field(
        None, description="URL at which others reach this MDP; by default that of the request"
    )


class FederationEntry(Strict):
    """How this MDP joins a federation: as a peer, or as a superpeer that is connected with another one."""

    url: StrictStr = Field(description="URL of the superpeer")
    code: StrictStr = Field(description="code of its invitation", max_length=4096)
    name: StrictStr | None = Field(None, description="name of the new peer; none if this MDP is a superpeer")


class NewFederationLink(Strict):
    """An MDP that connects with this superpeer."""

    name: StrictStr = Field(description="its name", json_schema_extra={"example": "p3"})
    key: StrictStr = Field(description="its public Ed25519 key, base64url")
    is_superpeer: StrictBool = Field(False, description="it is a superpeer")
    code: StrictStr = Field("", description="code of an invitation", max_length=4096)


class FederationLinkShown(BaseModel):
    """This superpeer, for a new neighbour."""

    name: str
    key: str = Field(description="its public Ed25519 key, base64url")


class FederationInvitationShown(BaseModel):
    """The code of an invitation. It is shown once."""

    code: str = Field(description="for one MDP: `mdv federation join URL CODE`")


class FederationPrivilege(Strict):
    """What other superpeers may do with data of this peer group."""

    kind: Literal["class", "property", "prefix", "resource"]
    name: StrictStr = Field(description="URI of the class, property or resource; or a prefix of resources")
    privilege: Literal["private", "read-only", "read-write"]


class FederationPrivileges(Strict):
    """All privileges. The most specific one holds: resource, prefix, property, class. Without one, data is private."""

    items: list[FederationPrivilege] = Field(max_length=1000)


class FederationExchangeQuery(Strict):
    wait: float = Field(0, ge=0, le=60, description="seconds to wait for messages")


class ExchangeQuery(Strict):
    wait: float = Field(0, ge=0, le=60, description="seconds that a poll without news may wait")
    wants: str = Field(
        "", description="lives whose operations end the wait, besides those of this MDP", max_length=4096
    )


class BackboneLogQuery(Strict):
    have: str = Field("{}", description="vector: life → last operation that the caller has", max_length=4096)
    of: str | None = Field(None, description="life; by default the own operations of this MDP", max_length=100)
    limit: int = Field(1000, ge=1, le=1000, description="maximum number of operations")
    wait: float = Field(0, ge=0, le=60, description="seconds to wait for operations")


class BackboneStateQuery(Strict):
    after: str | None = Field(None, description="the `next` of the previous page", max_length=2048)
    buckets: str | None = Field(None, description="comma-separated numbers of buckets", max_length=4096)
    limit: int = Field(1000, ge=1, le=1000, description="maximum number of documents")


class BackboneChecksumQuery(Strict):
    bucket: int | None = Field(None, ge=0, lt=65536, description="list the documents of this bucket")
    buckets: str | None = Field(
        None, description="comma-separated numbers of buckets: list their documents", max_length=4096
    )
    level: Literal["groups"] | None = Field(None, description="groups: the sums of 256 groups of buckets")
    groups: str | None = Field(
        None, description="comma-separated numbers of groups: the sums of their buckets", max_length=1024
    )


class MarksQuery(Strict):
    uri: str = Field(description="the document", json_schema_extra=EXAMPLE, min_length=1)
    all: bool = Field(False, description="true: also statements whose number is 0 or 1")


class BackboneVerification(Strict):
    """Which documents to compare."""

    peer: StrictStr | None = Field(None, description="name of a member; without it, all others")
    deep: StrictBool = Field(False, description="true: also check all rows of this MDP against its digests")


class BackboneRepair(Strict):
    """Which documents to replace."""

    from_: StrictStr = Field(alias="from", description="name of the member whose documents are right")
    documents: list[StrictStr] | None = Field(
        None, description="URIs; without them, all documents that differ", max_length=10_000
    )


class ConflictResolution(Strict):
    """How a conflict is resolved."""

    keep: list[dict[str, Any] | StrictStr] = Field(
        description="the values to be kept, as the conflict lists them, or their texts; those of a remnant are the"
        " document itself, or nothing",
        max_length=1000,
    )


class BackboneConflictQuery(ListQuery):
    uri: str | None = Field(None, description="only conflicts of this document", json_schema_extra=EXAMPLE)
