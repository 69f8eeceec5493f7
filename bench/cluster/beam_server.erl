%% The node that `beam.escript` measures.
-module(beam_server).
-export([start/0, echo/0, sink/0, share/2, has/2, come_up/2]).

start() ->
    register(echo, spawn(fun echo/0)),
    register(sink, spawn(fun sink/0)).

echo() ->
    receive {From, Payload} -> From ! {back, Payload} end,
    echo().

sink() ->
    receive
        {expect, From, Count} ->
            take(Count),
            From ! done;
        _ -> ok
    end,
    sink().

take(0) -> ok;
take(Count) -> receive _ -> take(Count - 1) end.

%% The first, the second or the third node of a group: joins `pair` and `full` once it knows the members of two nodes and
%% of all.
share(Own, Total) ->
    {ok, _} = pg:start(figures),
    Waiting = fun() -> receive stop -> ok end end,
    [ok = pg:join(figures, room, spawn(Waiting)) || _ <- lists:seq(1, Own)],
    spawn(fun() ->
        has(room, 2 * (Total div 3)),
        ok = pg:join(figures, pair, self()),
        has(room, Total),
        ok = pg:join(figures, full, self()),
        Waiting()
    end),
    ok.

%% Waits until a group has so many members.
has(Group, Count) ->
    {Ref, Members} = pg:monitor(figures, Group),
    has(Ref, Count, length(Members)),
    pg:demonitor(figures, Ref),
    ok.

has(_, Count, Known) when Known >= Count -> ok;
has(Ref, Count, Known) ->
    receive
        {Ref, join, _, Pids} -> has(Ref, Count, Known + length(Pids));
        {Ref, leave, _, Pids} -> has(Ref, Count, Known - length(Pids))
    end.

%% Connects the third node. Returns how long it takes until all three know all members.
come_up([First, Second], Total) ->
    true = net_kernel:connect_node(First),
    Begin = erlang:monotonic_time(nanosecond),
    true = net_kernel:connect_node(Second),
    has(room, Total),
    has(full, 3),
    erlang:monotonic_time(nanosecond) - Begin.
