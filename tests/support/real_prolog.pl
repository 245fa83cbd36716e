% The meaning of ReAL programs in Prolog, whose backtracking gives the streams. An oracle that shares no code with MDV.
%
% A line of the input is run(Id, Facts, Actions, Expression). A line of the output has the id, the solutions, the
% statements afterwards and `error` or `ok`, separated by tabs.
%
% Two traps: retract/1 also yields facts that are gone already, so `-` looks again; and transaction/1 is once/1, so
% `[ ]` and `{ }` are layers of changes.

:- initialization(main, main).
:- dynamic base/4, changed/6, below/2, action/4.

main :-
    read_term(Term, []),
    (   Term == end_of_file -> true ; answer(Term), main ).

answer(run(Id, Facts, Actions, Expression)) :-
    retractall(base(_, _, _, _)), retractall(changed(_, _, _, _, _, _)), retractall(below(_, _)),
    retractall(action(_, _, _, _)), flag(layer, _, 1),
    forall(member(F, Facts), assertz(F)), forall(member(A, Actions), assertz(A)),
    Solutions = found([], 0),
    catch(( solve(Expression, [], 0, Binding),
            arg(1, Solutions, Before), arg(2, Solutions, N0), N is N0 + 1,
            nb_setarg(1, Solutions, [Binding|Before]), nb_setarg(2, Solutions, N),
            N >= 200 -> End = ok ; End = ok ),
          error(real, _), End = error),
    arg(1, Solutions, Reversed), reverse(Reversed, List),
    findall(G-S-P-O, base(G, S, P, O), Content), sort(Content, Sorted),
    write(Id), put_char('\t'), write_solutions(List), put_char('\t'), write_content(Sorted), put_char('\t'),
    write(End), nl.

write_solutions([]).
write_solutions([B|Bs]) :- sort(B, Sorted), write(';'), forall(member(V-T, Sorted), format("~w=~w,", [V, T])), write_solutions(Bs).
write_content([]).
write_content([G-S-P-O|Rest]) :- format("~w,~w,~w,~w;", [G, S, P, O]), write_content(Rest).

% --- expressions: solve(Expression, Binding, Layer, Result) ---

solve(true, B, _, B).
solve(and(X, Y), B, L, R) :- solve(X, B, L, B1), solve(Y, B1, L, R).
solve(union(X, _), B, L, R) :- solve(X, B, L, R).
solve(union(_, Y), B, L, R) :- solve(Y, B, L, R).
solve(or(X, Y), B, L, R) :- ( solve(X, B, L, R0) *-> R = R0 ; solve(Y, B, L, R) ).
solve(no(X), B, L, B) :- \+ solve(X, B, L, _).
solve(first(X), B, L, R) :- once(solve(X, B, L, R)).
solve(last(X), B, L, R) :- findall(R0, solve(X, B, L, R0), Rs), last(Rs, R).
solve(repeat(X), B, L, B) :- findall(x, solve(X, B, L, _), [_|_]).
solve(repeat_count(V, X), B, L, R) :-
    (   memberchk(V-T, B) -> atom_number(T, N), solve(repeat(N, X), B, L, R)
    ;   findall(x, solve(X, B, L, _), Rs), length(Rs, N), N > 0, atom_number(T, N), R = [V-T|B] ).
solve(repeat(0, _), B, _, B) :- !.
solve(repeat(N, X), B, L, B) :-
    Count = count(0),
    once(( solve(X, B, L, _), arg(1, Count, C0), C is C0 + 1, nb_setarg(1, Count, C), C >= N )).
solve(transaction(X), B, L, R) :- layer(L, N), solve(X, B, N, R), commit(N, L).
solve(sandbox(X), B, L, R) :- layer(L, N), solve(X, B, N, R).
solve(read(T), B, L, R) :- matches(T, B, L, Ms), member(R-_, Ms).
solve(take(T), B, L, R) :-
    matches(T, B, L, Ms), member(R-s(S, P, O), Ms),
    findall(G, present(L, G, S, P, O), Gs0), sort(Gs0, Gs), Gs \== [],
    forall(member(G, Gs), put(L, G, S, P, O, minus)).
solve(add(T), B, L, B) :-
    ground_triple(T, B, S, P, O), \+ present(L, _, S, P, O), put(L, into, S, P, O, plus).
solve(ensure(T), B, L, B) :-
    ground_triple(T, B, S, P, O), ( present(L, _, S, P, O) -> true ; put(L, into, S, P, O, plus) ).
solve(call(F, Ins, Outs), B, L, R) :-
    action(F, Names, Results, Body), maplist(bound_value(B), Ins, Values), pairs_keys_values(B0, Names, Values),
    solve(Body, B0, L, B1), outputs(Outs, Results, B1, B, R).

outputs([], [], _, B, B).
outputs([Item|Items], [Name|Names], B1, B, R) :-
    (   value(Item, B, Known) -> memberchk(Name-T, B1), Known == T, B2 = B
    ;   memberchk(Name-T, B1), Item = v(V), V \== '' -> B2 = [V-T|B]
    ;   B2 = B ),
    outputs(Items, Names, B1, B2, R).

% --- triples ---

value(c(T), _, T).
value(v(V), B, T) :- V \== '', memberchk(V-T, B).
bound_value(B, Item, T) :- ( value(Item, B, T) -> true ; throw(error(real, unbound)) ).
ground_triple(t(P0, S0, O0), B, S, P, O) :- bound_value(B, P0, P), bound_value(B, S0, S), bound_value(B, O0, O).

match(c(T), T, B, B).
match(v(V), T, B, R) :- ( V == '' -> R = B ; memberchk(V-T0, B) -> T0 == T, R = B ; R = [V-T|B] ).

matches(t(P, S, O), B, L, Ms) :-
    findall(s(S1, P1, O1), present(L, _, S1, P1, O1), All), sort(All, Sorted),
    findall(R-s(S1, P1, O1),
            ( member(s(S1, P1, O1), Sorted), match(S, S1, B, B1), match(P, P1, B1, B2), match(O, O1, B2, R) ), Ms).

% --- layers ---

layer(L, N) :- flag(layer, N, N + 1), assertz(below(N, L)).

present(L, G, S, P, O) :-
    findall(G-s(S, P, O), candidate(L, G, S, P, O), Cs), sort(Cs, Sorted),
    member(G-s(S, P, O), Sorted), says(L, G, S, P, O).
candidate(_, G, S, P, O) :- base(G, S, P, O).
candidate(L, G, S, P, O) :- L > 0, changed(L, G, S, P, O, plus).
candidate(L, G, S, P, O) :- L > 0, below(L, Below), Below > 0, candidate(Below, G, S, P, O).
says(0, G, S, P, O) :- !, base(G, S, P, O), !.
says(L, G, S, P, O) :- changed(L, G, S, P, O, Sign), !, Sign == plus.
says(L, G, S, P, O) :- below(L, Below), says(Below, G, S, P, O).

put(0, G, S, P, O, Sign) :- !, retractall(base(G, S, P, O)), ( Sign == plus -> assertz(base(G, S, P, O)) ; true ).
put(L, G, S, P, O, Sign) :- retractall(changed(L, G, S, P, O, _)), assertz(changed(L, G, S, P, O, Sign)).

commit(N, L) :-
    findall(c(G, S, P, O, Sign), changed(N, G, S, P, O, Sign), Cs), retractall(changed(N, _, _, _, _, _)),
    forall(member(c(G, S, P, O, Sign), Cs), put(L, G, S, P, O, Sign)).
