import time, cProfile, pstats, sys
from mdv.mdp.explain import explain
def test_x(mdp):
    mdp.put_schema(":B a rdfs:Class . :n rdfs:range xsd:integer . :s rdfs:range :B . :t rdfs:range :B ; mdv:setValued true .")
    mdp.put_one("http://d/1", "\n".join(f"<#r{n}> a :B ; :n {n} ; :s <#r{n+1}> ; :t <#r{n+2}>." for n in range(500)))
    path = ".".join(["t?"]*7)
    parts = " and ".join(f"(b.{path}.n = {i} or b.{path}.n > {i})" for i in range(6)) + " and " + " and ".join(f"b.{path}.n != {i}" for i in range(20))
    for sql in (False, True):
        text = f"search B b register b where {parts}"
        began = time.perf_counter()
        with mdp.engine.connect() as c:
            pr = cProfile.Profile(); pr.enable()
            try:
                e = explain(c, text, mdp.schemas, mdp.rules, with_sql=sql)
                print(len(e.conjunctions), e.matches, len(str(e.as_dict())))
            except Exception as ex: print(type(ex), str(ex)[:300])
            pr.disable()
        print(sql, time.perf_counter() - began)
        pstats.Stats(pr, stream=sys.stdout).sort_stats("cumtime").print_stats(18)
    assert 0
