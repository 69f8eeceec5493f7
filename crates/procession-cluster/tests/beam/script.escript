#!/usr/bin/env escript
%%! -name client@127.0.0.1 -setcookie secret -hidden -kernel prevent_overlapping_partitions false
%% Runs a script against a node and prints its outcomes, one in a line. The same script runs against
%% a node of the BEAM.

-mode(compile).

main([Name]) ->
    put(node, list_to_atom(Name)),
    Scenarios = [
        {ping, fun() -> net_adm:ping(node_()) end},
        {terms, fun terms/0},
        {nobody, fun() -> catch gen_server:call({nobody, node_()}, x) end},
        {order, fun order/0},
        {large, fun large/0},
        {late, fun late/0},
        {monitor_name, fun monitor_name/0},
        {monitor_nobody, fun monitor_nobody/0},
        {demonitor, fun demonitor/0},
        {spawn_monitor, fun() -> [ended(R) || R <- [normal, shutdown]] end},
        {spawn_link, fun spawn_link_/0},
        {spawn_both, fun spawn_both/0},
        {link_from_there, fun link_from_there/0},
        {link_here, fun link_here/0},
        {unlink, fun unlink_/0},
        {kill, fun kill/0},
        {trap, fun trap/0},
        {watched_from_there, fun watched_from_there/0},
        {functions, fun functions/0},
        {alive, fun() -> gen_server:call({echo, node_()}, still_there) end}
    ],
    process_flag(trap_exit, true),
    [io:format("~p ~s~n", [N, hide(F())]) || {N, F} <- Scenarios],
    io:format("stop~n"),
    halt().

node_() -> get(node).
echo() -> {echo, node_()}.

%% The name of the node differs between runs.
hide(Term) ->
    Text = lists:flatten(io_lib:format("~0p", [plain(Term)])),
    re:replace(Text, atom_to_list(node_()), "NODE", [global, {return, list}]).

plain(Pid) when is_pid(Pid) -> pid;
plain(Ref) when is_reference(Ref) -> ref;
plain(T) when is_tuple(T) -> list_to_tuple(plain(tuple_to_list(T)));
plain([H | T]) -> [plain(H) | plain(T)];
plain(T) -> T.

functions() ->
    Call = fun(F, A) -> erpc:call(node_(), procession, F, A, 5000) end,
    Response = erpc:receive_response(erpc:send_request(node_(), procession, total, [[3, 4]])),
    ok = erpc:cast(node_(), procession, total, [[5]]),
    [outcome(F) || F <- [
        fun() -> Call(total, [[1, 2, 1 bsl 40]]) end,
        fun() -> rpc:call(node_(), procession, total, [[]]) end,
        fun() -> erpc:multicall([node_()], procession, total, [[7]]) end,
        fun() -> Response end,
        fun() -> byte_size(Call(twice, [binary:copy(<<7>>, 1 bsl 20)])) end,
        fun() -> Call(fails, [{no, "reason"}]) end,
        fun() -> rpc:call(node_(), procession, fails, [why]) end,
        fun() -> Call(total, []) end,
        fun() -> rpc:call(node_(), procession, nothing, [1]) end
    ]] ++ [quiet()].

%% The trace of a failure differs.
outcome(F) ->
    try F() of
        {badrpc, {'EXIT', {Reason, Trace}}} when is_list(Trace) -> {badrpc, Reason};
        Value -> Value
    catch
        Class:{exception, Reason, Trace} when is_list(Trace) -> {Class, Reason};
        Class:Reason -> {Class, Reason}
    end.

next() -> receive M -> M after 5000 -> nothing end.
%% What is not there after a round trip that was sent later will not come.
quiet() ->
    gen_server:call(echo(), sync),
    receive M -> {unexpected, M} after 0 -> quiet end.

terms() ->
    F = fun(X) -> X end,
    Terms = [
        0, 255, 256, -1, 1 bsl 31, -(1 bsl 31) - 1, 1 bsl 63, -(1 bsl 63), 1 bsl 64, 1 bsl 3000,
        1.5, -0.0, 1.0e300, ok, 'Ünï', '', list_to_atom(lists:duplicate(255, $x)),
        list_to_atom(lists:duplicate(255, 16#20ac)),
        [], "abc", [1, 2, 300], [a | b], [[], [[]]], lists:seq(1, 70000),
        {}, {1}, list_to_tuple(lists:seq(1, 300)), #{}, #{a => 1, "b" => #{1 => 2}},
        maps:from_list([{N, N} || N <- lists:seq(1, 100)]),
        <<>>, <<1, 2, 3>>, <<5:3>>, <<1:1, 0:8>>, binary:copy(<<7>>, 100000),
        self(), make_ref(), hd(erlang:ports()), fun lists:map/2, F, {F, F}
    ],
    Wrong = [T || T <- Terms, gen_server:call(echo(), T) =/= T],
    Together = gen_server:call(echo(), Terms) =:= Terms,
    {length(Terms), Wrong, Together}.

order() ->
    Numbers = [N * 7919 rem 65536 || N <- lists:seq(1, 20000)],
    echo() ! {sum, self(), length(Numbers)},
    [echo() ! {n, N} || N <- Numbers],
    Expected = lists:foldl(fun(N, Sum) -> (Sum * 31 + N) band 16#ffffffff end, 0, Numbers),
    receive {sum, Expected} -> right; {sum, Other} -> {wrong, Other} after 30000 -> nothing end.

%% Large messages in both directions, of several processes, beside small ones.
large() ->
    {Own, Echo} = {self(), echo()},
    Workers = [spawn_link(fun() ->
        Big = binary:copy(<<N>>, 8 * 1024 * 1024),
        Own ! {N, gen_server:call(Echo, {N, Big}, 60000) =:= {N, Big}}
    end) || N <- [1, 2, 3]],
    Small = [gen_server:call(echo(), N, 60000) || N <- lists:seq(1, 100)],
    Big = [receive {N, Right} -> Right end || N <- [1, 2, 3]],
    [receive {'EXIT', W, normal} -> ok end || W <- Workers],
    {Big, Small =:= lists:seq(1, 100)}.

late() ->
    Result = (catch gen_server:call(echo(), slow, 50)),
    echo() ! go,
    {Result, quiet()}.

start() ->
    echo() ! {start, self()},
    receive {started, Pid} -> Pid after 5000 -> error(not_started) end.

monitor_name() ->
    M = monitor(process, echo()),
    true = demonitor(M),
    Pid = start(),
    N = monitor(process, Pid),
    Pid ! {stop, normal},
    {next(), is_reference(N), quiet()}.

monitor_nobody() ->
    monitor(process, {nobody, node_()}),
    First = next(),
    Pid = start(),
    M = monitor(process, Pid),
    Pid ! {stop, shutdown},
    receive {'DOWN', M, process, Pid, shutdown} -> ok end,
    monitor(process, Pid),
    {First, next(), quiet()}.

demonitor() ->
    Pid = start(),
    M = monitor(process, Pid),
    demonitor(M),
    Pid ! {stop, normal},
    quiet().

ended(Reason) ->
    {Pid, M} = spawn_monitor(node_(), procession, worker, [Reason]),
    receive {'DOWN', M, process, Pid, R} -> R after 5000 -> nothing end.

spawn_link_() ->
    Pid = spawn_link(node_(), procession, worker, [shutdown]),
    receive {'EXIT', Pid, R} -> {R, quiet()} after 5000 -> nothing end.

spawn_both() ->
    {Pid, M} = spawn_opt(node_(), procession, worker, [wait], [link, monitor]),
    Pid ! {stop, shutdown},
    A = receive {'EXIT', Pid, R} -> R after 5000 -> nothing end,
    B = receive {'DOWN', M, process, Pid, S} -> S after 5000 -> nothing end,
    {A, B, quiet()}.

link_from_there() ->
    Pid = spawn(node_(), procession, worker, [{link, self()}]),
    gen_server:call(echo(), sync),
    Pid ! {stop, shutdown},
    {next(), quiet()}.

link_here() ->
    Own = self(),
    Pid = start(),
    M = monitor(process, Pid),
    spawn(fun() -> link(Pid), Own ! linked, exit(shutdown) end),
    linked = next(),
    {next(), is_reference(M), quiet()}.

unlink_() ->
    Pid = start(),
    link(Pid),
    unlink(Pid),
    M = monitor(process, Pid),
    Pid ! {stop, shutdown},
    {receive {'DOWN', M, _, _, R} -> R after 5000 -> nothing end, quiet()}.

kill() ->
    Own = self(),
    Pid = spawn(node_(), procession, worker, [{trap, Own}]),
    {ready, Pid} = next(),
    M = monitor(process, Pid),
    exit(Pid, kill),
    {receive {'DOWN', M, _, _, R} -> R after 5000 -> nothing end, quiet()}.

trap() ->
    Pid = spawn(node_(), procession, worker, [{trap, self()}]),
    {ready, Pid} = next(),
    exit(Pid, shutdown),
    {next(), quiet()}.

%% The node under test monitors a process of this one.
watched_from_there() ->
    Local = spawn(fun() -> receive {stop, R} -> exit(R) end end),
    Pid = spawn(node_(), procession, worker, [{watch, self(), Local}]),
    {watching, Pid} = next(),
    Local ! {stop, shutdown},
    First = next(),
    Late = spawn(node_(), procession, worker, [{watch, self(), Local}]),
    {watching, Late} = next(),
    {First, next(), quiet()}.
