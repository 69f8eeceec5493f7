#!/usr/bin/env escript
%% -*- erlang -*-
%%! +S 2:2 +P 4000000
%% The workloads of `bench/own` on the BEAM, written in the style of its documentation.
%% README.md describes how to run them.
-mode(compile).
-export([main/1]).

-define(ROUNDS_MAX, 1000).

workloads() ->
    [{"spawn", [{"spawn", "ns"}], fun spawn_all/1},
     {"skynet", [{"skynet", "ns"}], fun skynet/1},
     {"pingpong", [{"pingpong", "ns"}], fun pingpong/1},
     {"ring", [{"ring", "ns"}], fun ring/1},
     {"fanin", [{"fanin", "ns"}], fun fanin/1},
     {"yield", [{"yield", "ns"}], fun yield/1},
     {"step", [{"step", "ns"}], fun step/1},
     {"idle_mem", [{"idle_mem", "bytes"}], fun idle_mem/1},
     {"downs", [{"downs", "ns"}, {"downs_held", "bytes"}, {"downs_kept", "bytes"}, {"downs_lost", "bytes"}], fun downs/1},
     {"group_broadcast", [{"group_broadcast", "ns"}], fun group_broadcast/1},
     {"timers_cancel", [{"timers_cancel", "ns"}], fun timers_cancel/1},
     {"timers_fire", [{"timers_fire", "ns"}, {"timers_fire_cpu", "ns"}], fun timers_fire/1},
     {"timer_behind_hog", [{"timer_behind_hog", "us"}, {"timer_behind_hog_max", "us"}], fun timer_behind_hog/1},
     {"tick_beside_steps", [{Figure, "ms"} || {Figure, _, _} <- tick_cells()], fun tick_beside_steps/1},
     {"shares", [{Figure, "most/least"} || Figure <- ["shares_messages", "shares_yields", "shares_messages_2", "shares_yields_2"]],
      fun shares/1}].

of_(Count, Scale) -> (Count + Scale - 1) div Scale.

now_ns() -> erlang:monotonic_time(nanosecond).

each(Start, Count) -> [(now_ns() - Start) / Count].

check(_, Expected, Expected) -> ok;
check(What, Expected, Found) -> throw({wrong, What, Expected, Found}).

%% As with `spawn`, a counter tells of the last one. A member joins by itself, as `pg` wants it.
group_broadcast(Scale) ->
    {Messages, Members} = {of_(100, Scale), 10000},
    {ok, Scope} = pg:start(bench),
    {Left, Self} = {atomics:new(1, []), self()},
    Pids = [spawn_link(fun() -> ok = pg:join(bench, members, self()), Self ! joined, member(Messages, 0, Left, Self) end)
            || _ <- lists:seq(1, Members)],
    [receive joined -> ok end || _ <- Pids],
    Start = now_ns(),
    times(Messages, fun() ->
        atomics:put(Left, 1, Members),
        All = pg:get_members(bench, members),
        [Pid ! 1 || Pid <- All],
        check("the members that get a message", Members, length(All)),
        receive all_received -> ok end
    end),
    Values = each(Start, Messages * Members),
    Sum = lists:sum([receive {sum, S} -> S end || _ <- Pids]),
    check("the sum of the messages", Messages * Members, Sum),
    gen_server:stop(Scope),
    Values.

member(0, Sum, _, Owner) -> Owner ! {sum, Sum};
member(N, Sum, Left, Owner) ->
    receive
        Number ->
            case atomics:sub_get(Left, 1, 1) of
                0 -> Owner ! all_received;
                _ -> ok
            end,
            member(N - 1, Sum + Number, Left, Owner)
    end.

%% A counter instead of a message for each: the workload measures processes.
spawn_all(Scale) ->
    Count = of_(1000000, Scale),
    Left = atomics:new(1, []),
    atomics:put(Left, 1, Count),
    Self = self(),
    Ends = fun() ->
        case atomics:sub_get(Left, 1, 1) of
            0 -> Self ! ended;
            _ -> ok
        end
    end,
    Start = now_ns(),
    times(Count, fun() -> spawn(Ends) end),
    receive ended -> ok end,
    each(Start, Count).

times(0, _) -> ok;
times(N, Do) -> Do(), times(N - 1, Do).

skynet(Scale) ->
    Leaves = of_(1000000, Scale),
    Self = self(),
    Start = now_ns(),
    spawn(fun() -> node_(Self, 0, Leaves) end),
    Sum = receive {sum, S} -> S end,
    Values = each(Start, Leaves),
    check("the sum of the leaves' numbers", Leaves * (Leaves - 1) div 2, Sum),
    Values.

node_(Parent, First, 1) -> Parent ! {sum, First};
node_(Parent, First, Leaves) ->
    Below = Leaves div 10,
    Self = self(),
    [spawn(fun() -> node_(Self, First + Child * Below, Below) end) || Child <- lists:seq(0, 9)],
    Parent ! {sum, sum_of(10, 0)}.

sum_of(0, Sum) -> Sum;
sum_of(N, Sum) -> receive {sum, S} -> sum_of(N - 1, Sum + S) end.

pingpong(Scale) ->
    Trips = of_(1000000, Scale),
    Self = self(),
    Pong = spawn_link(fun() -> pong(Self) end),
    Start = now_ns(),
    Number = ping(Trips, 0, Pong),
    Values = each(Start, Trips),
    Pong ! stop,
    check("the additions", Trips, Number),
    Values.

ping(0, Number, _) -> Number;
ping(N, Number, Pong) ->
    Pong ! Number,
    receive Next -> ping(N - 1, Next, Pong) end.

pong(Ping) ->
    receive
        stop -> ok;
        Number -> Ping ! Number + 1, pong(Ping)
    end.

ring(Scale) ->
    Hops = of_(2000000, Scale),
    Self = self(),
    First = lists:foldl(fun(_, Next) -> spawn_link(fun() -> link_(Next, 0, Self) end) end, self(), lists:seq(1, 502)),
    Start = now_ns(),
    First ! Hops,
    Own = link_(First, 0, none),
    Values = each(Start, Hops),
    Others = lists:sum([receive {made, Made} -> Made end || _ <- lists:seq(1, 502)]),
    check("the hops", Hops, Own + Others),
    Values.

link_(Next, Passed, Owner) ->
    receive
        0 ->
            Next ! 0,
            case Owner of
                none -> Passed;
                _ -> Owner ! {made, Passed}
            end;
        Number when is_integer(Number) ->
            Next ! Number - 1,
            link_(Next, Passed + 1, Owner)
    end.

fanin(Scale) ->
    Messages = of_(4000000, Scale),
    Share = Messages div 8,
    Self = self(),
    Start = now_ns(),
    [spawn_link(fun() -> send_all(Self, Sender * Share, (Sender + 1) * Share) end) || Sender <- lists:seq(0, 7)],
    Sum = add_up(Share * 8, 0),
    Values = each(Start, Messages),
    check("the sum of the messages", Messages * (Messages - 1) div 2, Sum),
    Values.

send_all(_, End, End) -> ok;
send_all(To, Number, End) -> To ! Number, send_all(To, Number + 1, End).

add_up(0, Sum) -> Sum;
add_up(N, Sum) -> receive Number when is_integer(Number) -> add_up(N - 1, Sum + Number) end.

yield(Scale) ->
    Processes = of_(1000, Scale),
    Count = of_(1000, Scale),
    Self = self(),
    Start = now_ns(),
    times(Processes, fun() -> spawn_link(fun() -> Self ! {made, yields(Count, 0)} end) end),
    Sum = lists:sum([receive {made, Made} -> Made end || _ <- lists:seq(1, Processes)]),
    Values = each(Start, Processes * Count),
    check("the yields", Processes * Count, Sum),
    Values.

yields(Count, Count) -> Count;
yields(Count, Made) -> erlang:yield(), yields(Count, Made + 1).

step(Scale) ->
    Count = of_(1000000, Scale),
    Self = self(),
    Start = now_ns(),
    Sum = steps(Self, 0, Count, 0),
    Values = each(Start, Count),
    check("the sum of the results", Count * (Count - 1) div 2, Sum),
    Values.

steps(_, Count, Count, Sum) -> Sum;
steps(Self, Number, Count, Sum) ->
    spawn(fun() -> Self ! {result, Number} end),
    receive {result, Result} -> steps(Self, Number + 1, Count, Sum + Result) end.

resident() ->
    {ok, Statm} = file:read_file("/proc/self/statm"),
    [_, Pages | _] = binary:split(Statm, <<" ">>, [global]),
    binary_to_integer(Pages) * 4096.

idle_mem(Scale) ->
    Count = of_(100000, Scale),
    Self = self(),
    Before = resident(),
    Addresses = [spawn(fun() -> Self ! there, receive go -> Self ! left end end) || _ <- lists:seq(1, Count)],
    times(Count, fun() -> receive there -> ok end end),
    After = resident(),
    [Address ! go || Address <- Addresses],
    times(Count, fun() -> receive left -> ok end end),
    [max(After - Before, 0) / Count].

%% The time is that of a round with warm memory.
downs(Scale) ->
    Count = of_(200000, Scale),
    Before = resident(),
    [_, Held] = once(fun kill_all/1, Count),
    receive after 200 -> ok end,
    Kept = resident(),
    [Time | _] = [hd(once(fun kill_all/1, Count)) || _ <- lists:seq(1, 4)],
    receive after 200 -> ok end,
    Lost = (resident() - Kept) / 4,
    [Time] ++ [max(Bytes, 0) / Count || Bytes <- [Held - Before, Kept - Before, Lost]].

kill_all(Count) ->
    Self = self(),
    Victims = [spawn_monitor(fun() -> Self ! there, receive go -> ok end end) || _ <- lists:seq(1, Count)],
    times(Count, fun() -> receive there -> ok end end),
    Held = resident(),
    Start = now_ns(),
    [exit(Victim, kill) || {Victim, _} <- Victims],
    times(Count, fun() -> receive {'DOWN', _, process, _, killed} -> ok end end),
    each(Start, Count) ++ [Held].

timers_cancel(Scale) ->
    Live = of_(32768, Scale),
    Count = of_(1000000, Scale),
    Self = self(),
    Run = fun() ->
        Timers = [arm() || _ <- lists:seq(1, Live)],
        Queue = queue:from_list([arm() || _ <- lists:seq(1, 1000)]),
        Self ! ready,
        receive go -> ok end,
        Last = rearm(Count, Queue),
        Self ! ended,
        [erlang:cancel_timer(Timer) || Timer <- Timers ++ queue:to_list(Last)]
    end,
    Processes = [spawn_link(Run), spawn_link(Run)],
    times(2, fun() -> receive ready -> ok end end),
    Start = now_ns(),
    [Process ! go || Process <- Processes],
    times(2, fun() -> receive ended -> ok end end),
    each(Start, Count).

arm() -> erlang:start_timer(999 + rand:uniform(29000), self(), fires).

rearm(0, Queue) -> Queue;
rearm(N, Queue) ->
    {{value, Oldest}, Rest} = queue:out(Queue),
    erlang:cancel_timer(Oldest),
    rearm(N - 1, queue:in(arm(), Rest)).

%% Includes all threads of the virtual machine.
cpu_ns() -> {Ms, _} = erlang:statistics(runtime), Ms * 1000000.

%% The BEAM can sleep only for whole milliseconds.
timers_fire(Scale) ->
    Count = of_(1000000, Scale),
    WithinMs = of_(1000, Scale),
    Left = atomics:new(1, []),
    atomics:put(Left, 1, Count),
    Self = self(),
    Cpu = cpu_ns(),
    Start = now_ns(),
    times(Count, fun() ->
        Ms = rand:uniform(WithinMs) - 1,
        spawn(fun() ->
            timer:sleep(Ms),
            case atomics:sub_get(Left, 1, 1) of
                0 -> Self ! ended;
                _ -> ok
            end
        end)
    end),
    receive ended -> ok end,
    each(Start, Count) ++ [(cpu_ns() - Cpu) / Count].

timer_behind_hog(Scale) ->
    Ticks = of_(1000, Scale),
    Hog = spawn_link(fun Hogs() ->
        computes(now_ns() + 10000000),
        timer:sleep(1),
        Hogs()
    end),
    Lateness = ticks(Ticks, erlang:monotonic_time(millisecond) + 2, []),
    unlink(Hog),
    exit(Hog, kill),
    [lists:sum(Lateness) / Ticks, lists:max(Lateness)].

computes(Until) ->
    case now_ns() < Until of
        true -> computes(Until);
        false -> ok
    end.

%% At whole milliseconds of the clock, which is the precision of the BEAM's timers.
ticks(0, _, Lateness) -> Lateness;
ticks(N, Due, Lateness) ->
    erlang:start_timer(Due, self(), tick, [{abs, true}]),
    receive {timeout, _, tick} -> ok end,
    Late = (now_ns() - Due * 1000000) / 1000,
    ticks(N - 1, Due + 1, [Late | Lateness]).

%% Only native code blocks a scheduler of the BEAM, so the steps compute.
tick_cells() ->
    [{lists:flatten(io_lib:format("tick_compute_~s_~b", [Name, Count])), Us, Count}
     || {Name, Us} <- [{"0.1", 100}, {"1", 1000}, {"9", 9000}], Count <- [1, 2, 4, 50]].

tick_beside_steps(Scale) ->
    [latest_tick(of_(Us, Scale) * 1000, Count, of_(750000, Scale) * 1000) || {_, Us, Count} <- tick_cells()].

latest_tick(Step, Count, Watched) ->
    Hogs = [spawn_monitor(fun() -> steps_until(Step) end) || _ <- lists:seq(1, Count)],
    Latest = latest(now_ns() + Watched, 0),
    [Hog ! stop || {Hog, _} <- Hogs],
    times(Count, fun() -> receive {'DOWN', _, process, _, normal} -> ok end end),
    Latest / 1000000.

steps_until(Step) ->
    receive
        stop -> ok
    after 0 ->
        computes(now_ns() + Step),
        erlang:yield(),
        steps_until(Step)
    end.

%% Returns the next whole millisecond of the clock that is at least 1 ms away.
latest(End, Latest) ->
    case now_ns() < End of
        false -> Latest;
        true ->
            Due = erlang:monotonic_time(millisecond) + 2,
            erlang:start_timer(Due, self(), tick, [{abs, true}]),
            receive {timeout, _, tick} -> ok end,
            latest(End, max(Latest, now_ns() - Due * 1000000))
    end.

%% The BEAM has no channels.
shares(Scale) ->
    Online = erlang:system_info(schedulers_online),
    Ratios = lists:append([shares(Width, Among, of_(300000, Scale) div 1000 + 1) || {Width, Among} <- [{1, 9}, {2, 8}]]),
    erlang:system_flag(schedulers_online, Online),
    Ratios.

shares(Width, Among, Ms) ->
    erlang:system_flag(schedulers_online, Width),
    [begin
        Stop = atomics:new(1, []),
        Self = self(),
        times(Among, fun() -> spawn_link(fun() -> Self ! {turns, Turns(Stop)} end) end),
        receive after Ms -> ok end,
        atomics:put(Stop, 1, 1),
        All = [receive {turns, Had} -> max(Had, 1) end || _ <- lists:seq(1, Among)],
        lists:max(All) / lists:min(All)
    end || Turns <- [fun in_messages/1, fun(Stop) -> in_yields(Stop, 0) end]].

in_messages(Stop) ->
    Self = self(),
    in_messages(Stop, spawn_link(fun() -> pong(Self) end), 0).

in_messages(Stop, Pong, Turns) ->
    case atomics:get(Stop, 1) of
        1 -> Pong ! stop, Turns;
        0 ->
            Pong ! Turns,
            receive Next -> in_messages(Stop, Pong, Next) end
    end.

in_yields(Stop, Turns) ->
    case atomics:get(Stop, 1) of
        1 -> Turns;
        0 -> erlang:yield(), in_yields(Stop, Turns + 1)
    end.

median(Values) ->
    Sorted = lists:sort(Values),
    Length = length(Sorted),
    (lists:nth(Length div 2 + Length rem 2, Sorted) + lists:nth(Length div 2 + 1, Sorted)) / 2.

measure({Name, Figures, Run}, Rounds, Scale, Json) ->
    %% Memory is measured once, in a program that has done nothing before. For several rounds, start
    %% it again.
    Outcomes = case Name of
        "idle_mem" -> [once(Run, Scale)];
        "downs" -> [once(Run, Scale)];
        _ -> once(Run, Scale), [once(Run, Scale) || _ <- lists:seq(1, Rounds)]
    end,
    Print = fun({At, {Figure, Unit}}) ->
        Value = median([lists:nth(At, Outcome) || Outcome <- Outcomes]),
        case Json of
            true ->
                io:format("{\"workload\":\"~s\",\"runtime\":\"beam\",\"value\":~.2f,\"unit\":\"~s\"}~n", [Figure, float(Value), Unit]);
            false -> io:format("~-20s ~9.1f ~s~n", [Figure, float(Value), Unit])
        end
    end,
    lists:foreach(Print, lists:zip(lists:seq(1, length(Figures)), Figures)).

%% Runs in a separate process, with an empty mailbox and heap.
once(Run, Scale) ->
    Self = self(),
    {Process, Monitor} = spawn_monitor(fun() -> Self ! {outcome, self(), Run(Scale)} end),
    receive
        {outcome, Process, Values} -> demonitor(Monitor, [flush]), Values;
        {'DOWN', Monitor, process, Process, Reason} -> throw({failed, Reason})
    end.

parse([], Options) -> Options;
parse(["--json" | Rest], Options) -> parse(Rest, Options#{json := true});
parse(["--tiny" | Rest], Options) -> parse(Rest, Options#{scale := 100});
parse(["--rounds", Text | Rest], Options) ->
    case string:to_integer(Text) of
        {Rounds, ""} when Rounds >= 1, Rounds =< ?ROUNDS_MAX -> parse(Rest, Options#{rounds := Rounds});
        _ -> throw({usage, io_lib:format("--rounds wants a number from 1 to ~b", [?ROUNDS_MAX])})
    end;
parse([Name | Rest], #{chosen := Chosen} = Options) ->
    case lists:keyfind(Name, 1, workloads()) of
        false -> throw({usage, ["unknown workload or option ", Name]});
        Workload -> parse(Rest, Options#{chosen := Chosen ++ [Workload]})
    end.

main(Arguments) ->
    try
        #{rounds := Rounds, scale := Scale, json := Json, chosen := Chosen} =
            parse(Arguments, #{rounds => 5, scale => 1, json => false, chosen => []}),
        Workloads = case Chosen of [] -> workloads(); _ -> Chosen end,
        [measure(Workload, Rounds, Scale, Json) || Workload <- Workloads],
        ok
    catch
        throw:{usage, Why} -> fail(2, [Why, "\nusage: bench.escript [--rounds N] [--json] [--tiny] [WORKLOAD]..."]);
        throw:Why -> fail(1, io_lib:format("~p", [Why]))
    end.

fail(Code, Why) ->
    io:format(standard_error, "beam-bench: ~ts~n", [Why]),
    halt(Code).
