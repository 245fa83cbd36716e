import time
from mdv.mdp.query import run_query
def test_x(mdp):
    mdp.put_schema(":B a rdfs:Class . :n rdfs:range xsd:integer . :s rdfs:range :B . :t rdfs:range :B ; mdv:setValued true .")
    mdp.put_one("http://d/1", "\n".join(f"<#r{n}> a :B ; :n {n} ; :s <#r{n+1}> ; :t <#r{n+2}>." for n in range(500)))
    path = ".".join(["t?"]*7)
    where = " and ".join(f"(b.{path}.n = {i} or b.{path}.n > {i})" for i in range(6)) + " and " + " and ".join(f"b.{path}.n != {i}" for i in range(20))
    for text in [
        f"search B b where {where} return b",
        f"search B b where {where} return " + ", ".join(f"b.{path}.n" for i in range(32)),
        "search B b return " + ", ".join(f"b.{path}.n" for i in range(32)),
        "search B b return " + ", ".join(f"b.{path}.n" for i in range(8)),
        "search B b where " + " or ".join(f"b.n = {n}" for n in range(32)) + " return b, b.n",
        "search B b where " + " or ".join(f"b.n = {n}" for n in range(32)) + " return "  + ", ".join(f"b.{path}.n" for i in range(2)),
        "search B b where " + " and ".join(f"(b.n = {n} or b.n != {n})" for n in range(6)) + " return " + ", ".join(f"b.{path}.n" for i in range(1)),
        "search B b where " + " and ".join(f"(b.n = {n} or b.n != {n})" for n in range(6)) + " return b",
        f"search B b register b where {where}",
    ]:
        began = time.perf_counter()
        from mdv.rules.returns import normalise_query
        with mdp.engine.connect() as c:
            try:
                e = run_query(c, text, mdp.schemas)
                print(len(getattr(e,'rows',[])))
            except Exception as ex: print(type(ex), str(ex)[:300])
        print(len(text), time.perf_counter() - began, flush=True)
