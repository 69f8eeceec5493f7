#!/usr/bin/env escript
%%! -setcookie secret -kernel prevent_overlapping_partitions false
%% A node of the BEAM whose processes are in groups with those of a node of Procession, by `pg`.
%% Phoenix.PubSub cannot be had here, so `broadcast/4` stands in for its adapter over `pg`: it sends
%% the same messages to the same members.

-mode(compile).
-define(SCOPE, 'Elixir.Phoenix.PubSub').
-define(GROUP, 'Elixir.Shop.PubSub.Adapter').

%% `Kind` is `visible` or `hidden`, and `Order` says whether the scope or the connection is first.
main([Name, Kind, Order]) ->
    Node = list_to_atom(Name),
    Hidden = #{dist_listen => true, hidden => Kind =:= "hidden"},
    Own = list_to_atom("groups_" ++ hd(string:lexemes(Name, "@")) ++ "_" ++ Kind ++ "_" ++ Order ++ "@127.0.0.1"),
    {ok, _} = net_kernel:start(Own, Hidden#{name_domain => longnames}),
    case Order of
        "scope" -> {ok, _} = pg:start_link(?SCOPE), pong = net_adm:ping(Node);
        "connection" -> pong = net_adm:ping(Node), {ok, _} = pg:start_link(?SCOPE)
    end,
    [Theirs] = until(?GROUP, 1),
    Node = node(Theirs),
    {Monitor, #{}} = pg:monitor_scope(?SCOPE),

    %% Members here, of which one is in a group twice.
    ok = pg:join(?SCOPE, ?GROUP, self()),
    ok = pg:join(?SCOPE, {room, 7}, [self(), self()]),
    [receive {Monitor, join, _, _} -> ok end || _ <- [1, 2]],

    %% A topic goes to the members of other nodes, and comes from there.
    broadcast(?SCOPE, ?GROUP, <<"prices">>, {tea, 3}),
    receive {forward_to_local, <<"prices">>, {came, {tea, 3}}, 'Elixir.Phoenix.PubSub'} -> ok end,
    receive twice -> receive twice -> ok end end,

    %% Joins, leaves and ends there.
    Theirs ! {join, <<"late">>},
    receive {Monitor, join, late, [Theirs]} -> ok end,
    Theirs ! {leave, <<"late">>},
    receive {Monitor, leave, late, [Theirs]} -> ok end,
    ok = pg:leave(?SCOPE, {room, 7}, self()),
    Theirs ! {stop, <<"now">>},
    receive {Monitor, leave, ?GROUP, [Theirs]} -> ok end,
    [_] = pg:get_members(?SCOPE, ?GROUP),
    io:format("done~n"),
    halt().

until(Group, Count) ->
    case pg:get_members(?SCOPE, Group) of
        Members when length(Members) =:= Count -> Members;
        _ -> timer:sleep(5), until(Group, Count)
    end.

%% As `Phoenix.PubSub.PG2.broadcast/4` does, without the local subscribers.
broadcast(Scope, Group, Topic, Message) ->
    Forward = {forward_to_local, Topic, Message, 'Elixir.Phoenix.PubSub'},
    [Pid ! Forward || Pid <- pg:get_members(Scope, Group), node(Pid) =/= node()].
