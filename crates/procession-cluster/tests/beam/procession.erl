%% What the node under test offers, once more as a node of the BEAM, so that the same script runs on
%% both.
-module(procession).
-export([start/0, worker/1, echo/0, total/1, twice/1, fails/1]).

start() ->
    register(echo, spawn(fun echo/0)),
    receive stop -> ok end.

%% Answers calls with their request. Forwards, ends and reports as it is told.
echo() ->
    receive
        {'$gen_call', From, slow} ->
            receive go -> gen_server:reply(From, late) end,
            echo();
        {'$gen_call', From, Request} ->
            gen_server:reply(From, Request),
            echo();
        {to, Pid, Message} ->
            Pid ! Message,
            echo();
        {sum, Pid, Count} ->
            Pid ! {sum, sum(Count, 0)},
            echo();
        {start, Pid} ->
            Pid ! {started, spawn(fun() -> worker(wait) end)},
            echo();
        _ ->
            echo()
    end.

sum(0, Sum) -> Sum;
sum(Count, Sum) -> receive {n, N} -> sum(Count - 1, (Sum * 31 + N) band 16#ffffffff) end.

worker(wait) -> receive {stop, Reason} -> exit(Reason) end;
worker({link, Pid}) -> link(Pid), worker(wait);
worker({trap, Pid}) ->
    process_flag(trap_exit, true),
    Pid ! {ready, self()},
    receive {'EXIT', _, Reason} -> Pid ! {trapped, Reason} end;
worker({watch, Pid, What}) ->
    Monitor = monitor(process, What),
    Pid ! {watching, self()},
    receive {'DOWN', Monitor, process, _, Reason} -> Pid ! {seen, Reason} end;
worker(Reason) -> exit(Reason).

total(Numbers) -> lists:sum(Numbers).
twice(Binary) -> <<Binary/binary, Binary/binary>>.
fails(Reason) -> error(Reason).
