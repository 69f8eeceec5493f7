#!/usr/bin/env escript
%%! -name otp_client@127.0.0.1 -setcookie secret -kernel prevent_overlapping_partitions false
%% What an Erlang user expects of any process: system messages, events, links, reasons, large
%% replies, a place among all nodes.

-mode(compile).

main([Name]) ->
    Node = list_to_atom(Name),
    Server = {echo, Node},
    process_flag(trap_exit, true),
    pong = net_adm:ping(Node),
    true = lists:member(Node, nodes()),
    {[{Node, hello}], []} = gen_server:multi_call([Node], echo, hello),

    %% By a name, and with what the process shows of itself.
    [{<<"calls">>, Shown}] = sys:get_state(Server),
    true = is_binary(Shown),
    {status, _, {module, procession}, [[], running, _, [], [_]]} = sys:get_status(Server),
    {error, {unknown_system_msg, {debug, {trace, true}}}} = sys:trace(Server, true),

    %% Functions that only look.
    Shop = rpc:call(Node, erlang, whereis, [echo]),
    true = lists:member(Shop, rpc:call(Node, erlang, processes, [])),
    [echo] = rpc:call(Node, erlang, registered, []),
    {message_queue_len, 0} = rpc:call(Node, erlang, process_info, [Shop, message_queue_len]),
    {registered_name, echo} = hd(rpc:call(Node, erlang, process_info, [Shop])),
    [{status, waiting}, {links, []}] = rpc:call(Node, erlang, process_info, [Shop, [status, links]]),
    undefined = rpc:call(Node, erlang, whereis, [nobody]),
    {badrpc, {'EXIT', {not_allowed, _}}} = rpc:call(Node, erlang, halt, []),

    %% A suspended process answers nobody, and everybody afterwards.
    ok = sys:suspend(Server),
    {status, _, _, [[], suspended | _]} = sys:get_status(Server),
    Request = gen_server:send_request(Server, later),
    timeout = gen_server:wait_response(Request, 50),
    ok = sys:resume(Server),
    {reply, later} = gen_server:wait_response(Request, 5000),

    %% An event is with the process when the call returns.
    ok = gen_event:sync_notify(Server, {to, self(), event}),
    receive {notify, {to, _, event}} -> ok end,

    %% The label of a trace token is the request, there and back.
    Parent = <<"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01">>,
    [begin
         seq_trace:set_token(label, Label),
         Server ! {request, self()},
         receive {request, Parent, State} -> {label, Label} = seq_trace:get_token(label) end,
         seq_trace:set_token([])
     end || {Label, State} <- [{Parent, <<>>}, {{Parent, <<"a=1,b=2">>}, <<"a=1,b=2">>}]],

    %% A reply of 40 MiB, and messages of 30 MiB from ten processes at a time.
    Large = binary:copy(<<7>>, 40 bsl 20),
    Large = gen_server:call(Server, Large, 60000),
    Part = binary:part(Large, 0, 30 bsl 20),
    Calls = [spawn_monitor(fun() -> Part = gen_server:call(Server, Part, 60000) end) || _ <- lists:seq(1, 10)],
    [receive {'DOWN', Call, process, Pid, Why} -> normal = Why end || {Pid, Call} <- Calls],

    %% Reasons are terms, in both directions.
    ends_with(Node, {badmatch, [1, <<"two">>, #{three => 4.0}]}),
    ends_with(Node, boom),

    %% A link tells the end of a process, and ends it only with a grant.
    Linked = worker(Node),
    true = link(Linked),
    Linked ! {stop, normal},
    receive {'EXIT', Linked, normal} -> ok end,

    Stopped = worker(Node),
    ok = gen_server:stop(Stopped, normal, 5000),
    Shut = worker(Node),
    ok = gen_server:stop(Shut, shutdown, 5000),
    {'EXIT', {noproc, _}} = (catch sys:get_state(Shut)),
    io:format("done~n"),
    halt().

worker(Node) ->
    {echo, Node} ! {start, self()},
    receive {started, Pid} -> Pid end.

ends_with(Node, Reason) ->
    Pid = worker(Node),
    Monitor = monitor(process, Pid),
    exit(Pid, Reason),
    receive {'DOWN', Monitor, process, Pid, Reason} -> ok end.
