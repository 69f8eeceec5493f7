#!/usr/bin/env escript
%% -*- erlang -*-
%%! +S 2:2 -hidden -kernel prevent_overlapping_partitions false net_ticktime 4
%% The figures of `procession-cluster` (its bench `figures`) between two nodes of the BEAM. For TLS, the flags come by
%% `ERL_FLAGS`, and `tls` as an argument; `README.md` has the command.
-mode(compile).
-export([main/1]).

main(Arguments) ->
    Label = case lists:member("tls", Arguments) of true -> "tls"; false -> "plain" end,
    {Trips, Count, Kills, Members, Rounds} =
        case lists:member("tiny", Arguments) of
            true -> {100, 2000, 1, 30, 1};
            false -> {20000, 500000, 3, 10000, 5}
        end,
    {ok, _} = net_kernel:start('driver_beam@127.0.0.1', #{name_domain => longnames, net_ticktime => 4}),
    erlang:set_cookie(node(), figures),
    Print = fun(What, Value, Unit) -> io:format("~-5s ~-28s ~12.1f ~s~n", [Label, What, float(Value), Unit]) end,
    [two(Print, {Trips, Count, Kills}) || not lists:member("groups", Arguments)],
    [groups(Print, Members, Rounds) || Label =:= "plain"].

two(Print, {Trips, Count, Kills}) ->
    {Peer, Node} = start_peer(),
    trips(Trips div 10),
    Sorted = lists:sort(trips(Trips)),
    Print("round trip p50", percentile(Sorted, 0.5), "us"),
    Print("round trip p99", percentile(Sorted, 0.99), "us"),
    messages(Print, Node, Count),
    beside_large(Print),
    frozen(Print, Node),
    stop_peer(Peer),
    Downs = lists:sort([killed() || _ <- lists:seq(1, Kills)]),
    Print("killed to down", lists:nth(length(Downs) div 2 + 1, Downs) / 1000, "ms").

groups(Print, Members, Rounds) ->
    Ups = lists:sort([group_up(Members) || _ <- lists:seq(1, Rounds)]),
    [Print(io_lib:format("group of ~b up, ~s", [Members, Which]), percentile(Ups, Part) / 1000, "ms")
     || {Which, Part} <- [{"least", 0.0}, {"median", 0.5}, {"most", 1.0}]].

node_name() -> 'server_beam@127.0.0.1'.

start_peer() -> start_peer(node_name(), "-hidden").

%% `pg` looks for visible nodes only.
start_peer(Name, Flag) ->
    Code = filename:dirname(filename:absname(escript:script_name())),
    Eval = "{ok, Module, Code} = compile:file(\"" ++ filename:join(Code, "beam_server") ++ "\", [binary]), "
           "{module, _} = code:load_binary(Module, \"beam_server\", Code), beam_server:start()",
    Command = "erl -noinput " ++ Flag ++ " +S 2:2 -name " ++ atom_to_list(Name) ++ " -setcookie figures "
              "-kernel prevent_overlapping_partitions false net_ticktime 4 -eval '" ++ Eval ++ "'",
    Port = open_port({spawn, Command}, [exit_status]),
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    until(fun() -> net_adm:ping(Name) =:= pong end),
    until(fun() -> is_pid(rpc:call(Name, erlang, whereis, [sink])) end),
    {{Port, Pid}, Name}.

until(Condition) ->
    case Condition() of
        true -> ok;
        false -> timer:sleep(20), until(Condition)
    end.

signal(Name, Pid) -> os:cmd("kill -" ++ Name ++ " " ++ integer_to_list(Pid)).

stop_peer({_, Pid}) ->
    signal("KILL", Pid),
    timer:sleep(500).

percentile(Sorted, Part) -> lists:nth(trunc((length(Sorted) - 1) * Part) + 1, Sorted) / 1000.

trips(Count) -> Payload = binary:copy(<<7>>, 100), [trip(Payload) || _ <- lists:seq(1, Count)].

trip(Payload) ->
    Begin = erlang:monotonic_time(nanosecond),
    {echo, node_name()} ! {self(), Payload},
    receive {back, _} -> erlang:monotonic_time(nanosecond) - Begin end.

processor_time(Pid) ->
    {ok, Stat} = file:read_file("/proc/" ++ Pid ++ "/stat"),
    [_, Fields] = string:split(Stat, <<")">>, trailing),
    Words = string:lexemes(Fields, " "),
    10000 * (binary_to_integer(lists:nth(12, Words)) + binary_to_integer(lists:nth(13, Words))).

messages(Print, Node, Count) ->
    Both = fun() -> processor_time(os:getpid()) + processor_time(rpc:call(Node, os, getpid, [])) end,
    Used = Both(),
    Begin = erlang:monotonic_time(nanosecond),
    Sink = {sink, node_name()},
    Sink ! {expect, self(), Count},
    Payload = binary:copy(<<7>>, 100),
    flood(Sink, Payload, Count),
    receive done -> ok end,
    Took = erlang:monotonic_time(nanosecond) - Begin,
    Print("messages", Count * 1.0e6 / Took, "thousand/s"),
    Print("processor time per message", (Both() - Used) / Count, "us").

flood(_, _, 0) -> ok;
flood(Sink, Payload, Count) -> Sink ! Payload, flood(Sink, Payload, Count - 1).

beside_large(Print) ->
    Own = self(),
    Payload = binary:copy(<<7>>, 16 bsl 20),
    Pid = spawn(fun() ->
        Sink = {sink, node_name()},
        Sink ! {expect, self(), 4},
        flood(Sink, Payload, 4),
        receive done -> Own ! large_done end
    end),
    Sorted = lists:sort(until_done(Pid, binary:copy(<<7>>, 100), [])),
    Print("beside 64 MiB, p99", percentile(Sorted, 0.99), "us"),
    Print("beside 64 MiB, longest", percentile(Sorted, 1.0), "us").

until_done(Pid, Payload, All) ->
    Next = [trip(Payload) | All],
    receive large_done -> Next after 0 -> until_done(Pid, Payload, Next) end.

%% The ticks of the BEAM find it, as `net_ticktime 4` lets them.
frozen(Print, _Node) ->
    Pid = list_to_integer(rpc:call(node_name(), os, getpid, [])),
    Monitor = monitor(process, {echo, node_name()}),
    trip(<<1>>),
    Begin = erlang:monotonic_time(nanosecond),
    signal("STOP", Pid),
    receive {'DOWN', Monitor, _, _, noconnection} -> ok after 30000 -> exit(never_down) end,
    Print("frozen to down", (erlang:monotonic_time(nanosecond) - Begin) / 1.0e9, "s"),
    signal("KILL", Pid).

killed() ->
    {{_, Pid}, Node} = start_peer(),
    Monitor = monitor(process, {echo, Node}),
    trip(<<1>>),
    Begin = erlang:monotonic_time(nanosecond),
    spawn(fun() -> signal("KILL", Pid) end),
    receive {'DOWN', Monitor, _, _, noconnection} -> ok end,
    Took = (erlang:monotonic_time(nanosecond) - Begin) / 1000,
    timer:sleep(300),
    Took.

%% Brings a third node up in a group with members on all three. Returns nanoseconds.
group_up(Total) ->
    Own = Total div 3,
    Names = ['first_beam@127.0.0.1', 'second_beam@127.0.0.1', 'third_beam@127.0.0.1'],
    {Peers, [First, Second, Third]} = lists:unzip([start_peer(Name, "") || Name <- Names]),
    [ok = rpc:call(Node, beam_server, share, [Own, Total]) || Node <- [First, Second]],
    ok = rpc:call(Third, beam_server, share, [Total - 2 * Own, Total]),
    true = rpc:call(First, net_kernel, connect_node, [Second]),
    ok = rpc:call(First, beam_server, has, [pair, 2]),
    Took = rpc:call(Third, beam_server, come_up, [[First, Second], Total]),
    [stop_peer(Peer) || Peer <- Peers],
    Took.
