%% The node that `beam.escript` measures.
-module(beam_server).
-export([start/0, echo/0, sink/0]).

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
