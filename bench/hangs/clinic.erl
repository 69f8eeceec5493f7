%% The clinic on the BEAM. A row that never ends is ended by `run`.
-module(clinic).
-export([main/1]).

main(["list"]) ->
    [io:format("~s~n", [Name]) || Name <- rows()],
    halt(0);
main([Name]) ->
    Row = list_to_atom(Name),
    case lists:member(Row, rows()) of
        true ->
            %% The limit counts from here, because the start of the machine takes a while.
            io:format("begins~n"),
            row(Row);
        false -> halt(2)
    end,
    halt(0);
main(_) ->
    io:put_chars(standard_error, "usage: PROGRAM list | ROW\n"),
    halt(2).

rows() ->
    [driver, lifo, wake_race, steal_half, hogs, many_hogs, yield_loop, ready_loop, flooded_timer,
     block_on, own_mailbox, call_cycle, abandoned_send, leak, shutdown].

now_us() -> erlang:monotonic_time(microsecond).

ends(Us) -> io:format("ends ~.1f~n", [max(0, Us) / 1000]).

%% Waits for the moment at which something has happened that was due at another moment.
late(Due) -> receive {told, Then} -> ends(Then - Due) end.

tell(Main) -> Main ! {told, now_us()}.

%% Only native code blocks a scheduler of the BEAM, so what blocks elsewhere computes here.
compute() -> compute(0).
compute(N) -> compute(N + 1).

row(driver) ->
    Main = self(),
    Due = now_us() + 100000,
    spawn(fun() -> timer:sleep(50), compute() end),
    spawn(fun() -> timer:sleep(100), tell(Main) end),
    late(Due);
row(lifo) ->
    Main = self(),
    Waiting = spawn(fun() -> receive go -> tell(Main) end end),
    Due = now_us() + 50000,
    spawn(fun() -> timer:sleep(50), Waiting ! go, compute() end),
    late(Due);
row(wake_race) ->
    Rounds = 200000,
    Main = self(),
    Other = spawn(fun() -> pong(Rounds) end),
    spawn(fun() -> ping(Rounds, Other), tell(Main) end),
    receive {told, _} -> ends(0) end;
row(steal_half) ->
    Count = 200000,
    Main = self(),
    spawn(fun() -> [spawn(fun() -> Main ! N end) || N <- lists:seq(1, Count)] end),
    Seen = [receive N when is_integer(N) -> N end || _ <- lists:seq(1, Count)],
    case length(lists:usort(Seen)) of
        Count -> ends(0);
        _ -> io:format("refused 0.0 a process did not run once~n")
    end;
row(hogs) -> hogs(2);
row(many_hogs) -> hogs(8);
row(yield_loop) ->
    Main = self(),
    [spawn(fun Loop() -> erlang:yield(), Loop() end) || _ <- [1, 2]],
    Due = now_us() + 50000,
    spawn(fun() -> timer:sleep(50), tell(Main) end),
    late(Due);
row(ready_loop) ->
    Main = self(),
    [spawn(fun Loop() -> self() ! message, receive message -> ok end, Loop() end) || _ <- [1, 2]],
    timer:sleep(50),
    Due = now_us(),
    spawn(fun() -> tell(Main) end),
    late(Due);
row(flooded_timer) ->
    Main = self(),
    Due = now_us() + 50000,
    spawn(fun() ->
        erlang:send_after(50, self(), timer),
        [self() ! again || _ <- lists:seq(1, 1000)],
        flooded(Main)
    end),
    late(Due);
row(block_on) ->
    Main = self(),
    Due = now_us(),
    [spawn(fun() ->
        Own = self(),
        spawn(fun() -> Own ! done end),
        receive done -> tell(Main) end
    end) || _ <- [1, 2]],
    receive {told, _} -> late(Due) end;
row(own_mailbox) ->
    Begun = now_us(),
    self() ! 1,
    self() ! 2,
    receive 1 -> ends(now_us() - Begun) end;
row(call_cycle) ->
    {One, Other} = {server(), server()},
    One ! {next, Other},
    Other ! {next, One},
    Begun = now_us(),
    Monitor = monitor(process, One),
    %% The default time limit of `gen_server:call` is 5 s.
    try gen_call(One, 30000) of
        _ -> ends(now_us() - Begun)
    catch
        exit:Reason ->
            demonitor(Monitor),
            io:format("refused ~.1f ~0p~n", [(now_us() - Begun) / 1000, short(Reason)])
    end;
row(abandoned_send) ->
    Main = self(),
    {Gone, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, _, _, _} -> ok end,
    Due = now_us(),
    spawn(fun() -> Gone ! 1, Gone ! 2, tell(Main) end),
    late(Due);
row(leak) ->
    Main = self(),
    Due = now_us(),
    spawn(fun() -> Only = make_ref(), receive Only -> tell(Main) end end),
    late(Due);
row(shutdown) ->
    spawn(fun compute/0),
    timer:sleep(50),
    ends(0),
    init:stop(),
    receive never -> ok end.

hogs(Count) ->
    Main = self(),
    [spawn(fun compute/0) || _ <- lists:seq(1, Count)],
    timer:sleep(100),
    Due = now_us(),
    spawn(fun() -> tell(Main) end),
    late(Due).

ping(0, _) -> ok;
ping(N, Other) ->
    Other ! {ping, self()},
    receive pong -> ping(N - 1, Other) end.

pong(0) -> ok;
pong(N) -> receive {ping, From} -> From ! pong, pong(N - 1) end.

flooded(Main) ->
    receive
        again -> self() ! again, flooded(Main);
        timer -> tell(Main), flooded(Main)
    end.

%% A server that calls the next one to answer a call, as `gen_server` calls: with a monitor, and a
%% time limit whose default is 5 s.
server() -> spawn(fun() -> receive {next, Next} -> serve(Next) end end).

serve(Next) ->
    receive
        {'$gen_call', From, ask} ->
            gen:reply(From, gen_call(Next, 5000)),
            serve(Next)
    end.

gen_call(Server, Limit) ->
    case catch gen:call(Server, '$gen_call', ask, Limit) of
        {ok, Reply} -> Reply;
        {'EXIT', Reason} -> exit(Reason)
    end.

short({Reason, {_, _, _}}) -> Reason;
short(Reason) when is_atom(Reason) -> Reason;
short(Reason) when is_tuple(Reason) -> element(1, Reason).
