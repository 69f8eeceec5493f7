#!/usr/bin/env escript
%% -*- erlang -*-
%%! +S 1:1
%% Plays a file of scenarios on the BEAM, and prints the file with the outcome of each step.
%% `../beam.rs` does the same on Procession.
%%
%%     replay.escript scenarios.txt              prints the file, with its own outcomes if all is right
%%     replay.escript --random COUNT SEED        prints random scenarios, with their outcomes
%%
%% README.md beside this file describes the steps.
-mode(compile).
-export([main/1, init/1, start_worker/3, worker/4]).

main(["--random", Count, Seed]) ->
    quiet(),
    rand:seed(exsss, list_to_integer(Seed)),
    [random(Number) || Number <- lists:seq(1, list_to_integer(Count))],
    ok;
main([File]) ->
    quiet(),
    {ok, Text} = file:read_file(File),
    scenarios([string:trim(Line) || Line <- string:split(string:trim(binary_to_list(Text)), "\n", all)]);
main(_) ->
    io:format(standard_error, "usage: replay.escript FILE | --random COUNT SEED~n", []),
    halt(2).

%% Crash reports are not part of the outcomes.
quiet() -> logger:set_primary_config(level, none), process_flag(trap_exit, true).

scenarios([]) -> ok;
scenarios([[$# | _] = Title | Lines]) ->
    io:format("~s~n", [Title]),
    {Steps, Rest} = lists:splitwith(fun([$# | _]) -> false; (_) -> true end, Lines),
    Final = lists:foldl(fun step_line/2, fresh(), Steps),
    clear(Final),
    scenarios(Rest).

step_line("", State) -> io:format("~n"), State;
step_line(Line, State) ->
    [Step | _] = string:split(Line, " -> "),
    perform(Step, State).

perform(Step, State) ->
    {Outcome, Next} = step(Step, State),
    io:format("~s -> ~s~n", [Step, case Outcome of "" -> "nothing"; _ -> Outcome end]),
    Next.

%% pids: the process of each name, the latest first; known: processes with a reported end; defined:
%% supervisors.
fresh() ->
    #{pids => [], live => [], log => spawn_link(fun() -> log([], []) end), defined => [], root => none, dynamic => false, another => 0}.

clear(#{pids := Pids, log := Log, root := Root}) ->
    [exit(Pid, kill) || {_, Pid} <- Pids],
    case Root of
        none -> ok;
        _ -> exit(Root, shutdown), receive {'EXIT', Root, _} -> ok end
    end,
    unlink(Log),
    exit(Log, kill),
    [receive after 2 -> ok end || Pids =/= [] orelse Root =/= none],
    flush().

flush() -> receive _ -> flush() after 0 -> ok end.

step(Step, State) ->
    case string:lexemes(Step, " ") of
        ["start" | Names] ->
            {"", lists:foldl(fun(Name, S) -> known(Name, actor(), S) end, State, Names)};
        ["define", Name, Strategy, Intensity, Auto, ":" | _] ->
            [_, Children] = string:split(Step, " : "),
            Specs = [string:lexemes(Child, " ") || Child <- string:split(Children, ", ", all)],
            persistent_term:put({?MODULE, Name}, {Strategy, list_to_integer(Intensity), Auto, Specs, maps:get(log, State)}),
            Dynamic = maps:get(dynamic, State) orelse Strategy =:= "dynamic",
            {"", State#{defined := [Name | maps:get(defined, State)], dynamic := Dynamic}};
        [Verb | Words] when Verb =:= "tree"; Verb =:= "tell"; Verb =:= "kill"; Verb =:= "terminate"; Verb =:= "restart";
                            Verb =:= "delete"; Verb =:= "add"; Verb =:= "another"; Verb =:= "count"; Verb =:= "which";
                            Verb =:= "stop" ->
            {Result, Next} = tree(Verb, Words, State),
            settled(Result, Next);
        [[_ | _] = _Actor | _] ->
            [Who, Text] = string:split(Step, ": "),
            Ops = [operation(string:lexemes(Op, " "), State) || Op <- string:split(Text, ", ", all)],
            pid(Who, State) ! {do, Ops},
            observe(State)
    end.

%% Processes that do what they are asked.

actor() -> Ctl = self(), spawn(fun() -> actor(Ctl, #{}) end).

actor(Ctl, Monitors) ->
    receive
        {do, Ops} -> actor(Ctl, lists:foldl(fun(Op, All) -> do(Op, Ctl, All) end, Monitors, Ops));
        {ping, Ref} -> Ctl ! {pong, Ref}, actor(Ctl, Monitors);
        {text, Text} -> see(Ctl, {message, Text}), actor(Ctl, Monitors);
        {'EXIT', Pid, Reason} -> see(Ctl, {exit, Pid, Reason}), actor(Ctl, Monitors);
        {'DOWN', Ref, process, Pid, Reason} ->
            see(Ctl, {down, Pid, Reason, maps:get(Ref, Monitors)}),
            actor(Ctl, Monitors)
    end.

see(Ctl, What) -> Ctl ! {seen, self(), What}.

result(Ctl, Result) -> see(Ctl, {result, Result}).

operation(["spawn", Name], _) -> {spawn, [], Name, stays, none};
operation(["spawn_link", Name], _) -> {spawn, [link], Name, stays, none};
operation(["spawn_link", Name, "fails", Reason], _) -> {spawn, [link], Name, failed(Reason), none};
operation(["spawn_link", Name, "dies", Reason], _) -> {spawn, [link], Name, reason(Reason), none};
operation(["spawn_monitor", Name, Label], _) -> {spawn, [monitor], Name, stays, Label};
operation(["spawn_monitor", Name, Label, "fails", Reason], _) -> {spawn, [monitor], Name, failed(Reason), Label};
operation(["spawn_monitor", Name, Label, "dies", Reason], _) -> {spawn, [monitor], Name, reason(Reason), Label};
operation(["link", Name], State) -> {link, pid(Name, State)};
operation(["unlink", Name], State) -> {unlink, pid(Name, State)};
operation(["monitor", Name, Label], State) -> {monitor, pid(Name, State), Label};
operation(["demonitor", Label], _) -> {demonitor, Label};
operation(["trap", OnOff], _) -> {trap, OnOff =:= "on"};
operation(["exit", Reason], _) -> {exit, reason(Reason)};
operation(["panic"], _) -> panic;
operation(["return"], _) -> {exit, normal};
operation(["error", Reason], _) -> {exit, failed(Reason)};
operation(["send", Name, Text], State) -> {send, pid(Name, State), Text};
operation(["signal", Name, "kill"], State) -> {signal, pid(Name, State), kill};
operation(["signal", Name, Reason], State) -> {signal, pid(Name, State), reason(Reason)};
operation(["register", Label, Name], State) -> {register, list_to_atom(Label), pid(Name, State)};
operation(["unregister", Label], _) -> {unregister, list_to_atom(Label)};
operation(["whereis", Label], _) -> {whereis, list_to_atom(Label)};
operation(["send_name", Label, Text], _) -> {send_name, list_to_atom(Label), Text}.

do({spawn, Options, Name, Dies, Label}, Ctl, Monitors) ->
    Body = case Dies of
        stays -> fun() -> actor(Ctl, #{}) end;
        Reason -> fun() -> exit(Reason) end
    end,
    {Pid, All} = case spawn_opt(Body, Options) of
        {Child, Ref} -> {Child, Monitors#{Ref => Label}};
        Child -> {Child, Monitors}
    end,
    Ctl ! {spawned, Name, Pid, Dies =:= stays},
    All;
do({link, Pid}, _, Monitors) ->
    %% If the process does not trap exits, OTP may raise the error here in place of the signal.
    try link(Pid) catch error:noproc -> exit(noproc) end,
    Monitors;
do({unlink, Pid}, _, Monitors) -> unlink(Pid), Monitors;
do({monitor, Pid, Label}, _, Monitors) -> Monitors#{monitor(process, Pid) => Label};
do({demonitor, Label}, Ctl, Monitors) ->
    case [Ref || {Ref, Of} <- maps:to_list(Monitors), Of =:= Label] of
        [Ref] -> result(Ctl, demonitor(Ref, [flush, info]));
        [] -> result(Ctl, unknown)
    end,
    Monitors;
do({trap, Traps}, Ctl, Monitors) -> result(Ctl, process_flag(trap_exit, Traps)), Monitors;
do({exit, Reason}, _, _) -> exit(Reason);
do(panic, _, _) -> error(broken);
do({send, Pid, Text}, _, Monitors) -> Pid ! {text, Text}, Monitors;
do({signal, Pid, Reason}, _, Monitors) -> exit(Pid, Reason), Monitors;
do({register, Name, Pid}, Ctl, Monitors) -> result(Ctl, try register(Name, Pid) catch error:badarg -> refused end), Monitors;
do({unregister, Name}, Ctl, Monitors) -> result(Ctl, try unregister(Name) catch error:badarg -> refused end), Monitors;
do({whereis, Name}, Ctl, Monitors) -> result(Ctl, {is, whereis(Name)}), Monitors;
do({send_name, Name, Text}, Ctl, Monitors) ->
    try Name ! {text, Text} catch error:badarg -> result(Ctl, refused) end,
    Monitors.

reason(Text) -> list_to_atom(Text).

%% The reason of a process that ends by an error, which is its own choice and no crash.
failed(Text) -> {error, list_to_atom(Text)}.

pid(Name, #{pids := Pids}) -> {_, Pid} = lists:keyfind(Name, 1, Pids), Pid.

known(Name, Pid, State = #{pids := Pids, live := Live}) ->
    monitor(process, Pid),
    State#{pids := [{Name, Pid} | Pids], live := [Pid | Live]}.

%% Returns what was seen, once nothing can run. A chain of ends has at most as many links as there
%% are processes.
observe(State) ->
    {Seen, Next} = rounds(2 * length(maps:get(live, State)) + 4, [], State),
    {describe(Seen, maps:get(pids, Next)), Next}.

rounds(0, Seen, State) -> {Seen, State};
rounds(Left, Seen, State = #{live := Live}) ->
    Ref = make_ref(),
    [Pid ! {ping, Ref} || Pid <- Live],
    {More, Next} = pongs(Ref, length(Live), [], State),
    erlang:yield(),
    rounds(Left - 1, Seen ++ lists:reverse(More), Next).

pongs(Ref, Left, Seen, State = #{live := Live, pids := Pids}) ->
    receive
        {pong, Ref} -> pongs(Ref, Left - 1, Seen, State);
        {seen, Pid, What} -> pongs(Ref, Left, [{Pid, What} | Seen], State);
        {spawned, Name, Pid, true} -> pongs(Ref, Left, Seen, known(Name, Pid, State));
        {spawned, Name, Pid, false} -> pongs(Ref, Left, Seen, State#{pids := [{Name, Pid} | Pids]});
        {'DOWN', _, process, Pid, Reason} ->
            pongs(Ref, Left - 1, [{Pid, {ended, Reason}} | Seen], State#{live := lists:delete(Pid, Live)})
    after case Left > 0 of true -> 5; false -> 0 end ->
        {Seen, State}
    end.

%% For each process, in the order of names. Notices of several other processes came in any order.
describe(Seen, Pids) ->
    Names = lists:usort([name(Pid, Pids) || {Pid, _} <- Seen]),
    Lines = [[Name, ": ", lists:join(", ", told([text(What, Pids) || {Pid, What} <- Seen, name(Pid, Pids) =:= Name]))]
             || Name <- Names],
    lists:flatten(lists:join("; ", Lines)).

%% It is chance whether a process that is ended first sees what came before.
told(Texts) ->
    case [Text || Text = "ended" ++ _ <- Texts] of
        [] -> in_order(Texts);
        Ended -> Ended
    end.

in_order(Texts) ->
    {Told, Rest} = lists:splitwith(fun("down" ++ _) -> true; ("exit" ++ _) -> true; (_) -> false end, Texts),
    lists:sort(Told) ++ case Rest of [] -> []; [First | Others] -> [First | in_order(Others)] end.

name(Pid, Pids) -> {Name, _} = lists:keyfind(Pid, 2, Pids), Name.

text({message, Text}, _) -> "message " ++ Text;
text({exit, Pid, Reason}, Pids) -> lists:flatten(["exit ", name(Pid, Pids), " ", why(Reason)]);
text({down, Pid, Reason, Label}, Pids) -> lists:flatten(["down ", name(Pid, Pids), " ", why(Reason), " ", Label]);
text({ended, Reason}, _) -> "ended " ++ why(Reason);
text({result, {is, undefined}}, _) -> "= nobody";
text({result, {is, Pid}}, Pids) -> "= " ++ name(Pid, Pids);
text({result, Result}, _) -> "= " ++ atom_to_list(Result).

why(Reason) when is_atom(Reason) -> atom_to_list(Reason);
why({error, Reason}) when is_atom(Reason) -> "error " ++ atom_to_list(Reason);
why({_, Stack}) when is_list(Stack) -> "panicked".

%% Supervisors.

tree("tree", [Name], State) ->
    Result = case supervisor:start_link({local, list_to_atom(Name)}, ?MODULE, Name) of
        {ok, Pid} -> {"ok", State#{root := Pid}};
        {error, {shutdown, {failed_to_start_child, Id, _}}} -> {["failed ", Id], State}
    end,
    receive {'EXIT', _, {shutdown, _}} -> ok after 0 -> ok end,
    Result;
tree("tell", [Name, "error", Reason], State) -> {at(Name, fun(Pid) -> Pid ! {tell, "error " ++ Reason} end), State};
tree("tell", [Name, Reason], State) -> {at(Name, fun(Pid) -> Pid ! {tell, Reason} end), State};
tree("kill", [Name], State) -> {at(Name, fun(Pid) -> exit(Pid, kill) end), State};
tree("terminate", [Tree, Child], State) ->
    {asked(Tree, fun(Sup) -> supervisor:terminate_child(Sup, key(Tree, Child)) end), State};
tree("restart", [Tree, Child], State) -> {asked(Tree, fun(Sup) -> supervisor:restart_child(Sup, Child) end), State};
tree("delete", [Tree, Child], State) -> {asked(Tree, fun(Sup) -> supervisor:delete_child(Sup, Child) end), State};
tree("add", [Tree | Spec], State = #{log := Log}) ->
    {asked(Tree, fun(Sup) -> supervisor:start_child(Sup, child(Spec, Log)) end), State};
tree("another", [Tree], State = #{another := Count}) ->
    Name = "w" ++ integer_to_list(Count + 1),
    {asked(Tree, fun(Sup) -> supervisor:start_child(Sup, [Name]) end), State#{another := Count + 1}};
tree("count", [Tree], State) ->
    Count = fun(Sup) ->
        Counts = supervisor:count_children(Sup),
        lists:join(" ", [[atom_to_list(What), "=", integer_to_list(Number)] || {What, Number} <- Counts, What =/= workers])
    end,
    {asked(Tree, Count), State};
tree("which", [Tree], State) ->
    Which = fun(Sup) ->
        Children = lists:reverse(supervisor:which_children(Sup)),
        lists:join(" ", [[Id, case is_pid(Pid) of true -> "=runs"; false -> "=stopped" end] || {Id, Pid, _, _} <- Children])
    end,
    {asked(Tree, Which), State};
tree("stop", [], State = #{root := none}) -> {"absent", State};
tree("stop", [], State = #{root := Root}) -> exit(Root, shutdown), {"", State}.

%% Returns once the process has ended.
at(Name, Do) ->
    case whereis(list_to_atom(Name)) of
        undefined -> "absent";
        Pid ->
            Ref = monitor(process, Pid),
            Do(Pid),
            receive {'DOWN', Ref, process, Pid, _} -> "" end
    end.

asked(Tree, Ask) ->
    case whereis(list_to_atom(Tree)) of
        undefined -> "absent";
        Sup ->
            case Ask(Sup) of
                ok -> "ok";
                {ok, _} -> "ok";
                {error, {already_started, _}} -> "already_started";
                {error, What} when is_atom(What), What =/= nope -> atom_to_list(What);
                {error, _} -> "failed";
                Text -> Text
            end
    end.

key(Tree, Child) ->
    case persistent_term:get({?MODULE, Tree}) of
        {"dynamic", _, _, _, _} -> case whereis(list_to_atom(Child)) of undefined -> self(); Pid -> Pid end;
        _ -> Child
    end.

init(Name) ->
    {Strategy, Intensity, Auto, Specs, Log} = persistent_term:get({?MODULE, Name}),
    Flags = #{strategy => case Strategy of "dynamic" -> simple_one_for_one; _ -> list_to_atom(Strategy) end,
              intensity => Intensity, period => 1000, auto_shutdown => list_to_atom(Auto)},
    {ok, {Flags, [child(Spec, Log) || Spec <- Specs]}}.

child([Id, Kind, Restart | Significant], Log) ->
    Common = #{id => Id, restart => list_to_atom(Restart), significant => Significant =/= []},
    case Kind of
        "supervisor" ->
            Common#{start => {supervisor, start_link, [{local, list_to_atom(Id)}, ?MODULE, Id]}, type => supervisor};
        "template" -> Common#{start => {?MODULE, start_worker, ["worker", Log]}, shutdown => 1000};
        _ ->
            Stop = case Kind of "brutal" -> brutal_kill; "deaf" -> 20; _ -> 1000 end,
            Common#{start => {?MODULE, start_worker, [Kind, Log, Id]}, shutdown => Stop}
    end.

start_worker(Kind, Log, Id) -> proc_lib:start_link(?MODULE, worker, [self(), Kind, Log, Id]).

worker(Parent, Kind, Log, Id) ->
    process_flag(trap_exit, true),
    Before = ask(Log, {was, Id}),
    case Kind =:= "failing" orelse (Kind =:= "once" andalso Before) of
        true ->
            ask(Log, {note, ["?", Id]}),
            proc_lib:init_ack(Parent, {error, nope});
        false ->
            register(list_to_atom(Id), self()),
            ask(Log, {watch, Id, self()}),
            ask(Log, {note, ["+", Id]}),
            proc_lib:init_ack(Parent, {ok, self()}),
            work(Parent, Kind, Log, Id)
    end.

work(Parent, Kind, Log, Id) ->
    receive
        {tell, "panic"} -> error(broken);
        {tell, "error " ++ Reason} -> exit(failed(Reason));
        {tell, Reason} -> exit(list_to_atom(Reason));
        {'EXIT', Parent, Reason} when Kind =/= "deaf" ->
            ask(Log, {note, ["-", Id]}),
            exit(Reason);
        _ -> work(Parent, Kind, Log, Id)
    end.

ask(Log, What) ->
    Ref = make_ref(),
    Log ! {ask, self(), Ref, What},
    receive {Ref, Answer} -> Answer end.

%% Newest first.
log(Notes, Ends) -> log(Notes, Ends, #{}).

log(Notes, Ends, Watched) ->
    receive
        {ask, From, Ref, {note, Note}} -> From ! {Ref, ok}, log([Note | Notes], Ends, Watched);
        {ask, From, Ref, {was, Id}} -> From ! {Ref, lists:member(Id, maps:values(Watched))}, log(Notes, Ends, Watched);
        {ask, From, Ref, {watch, Id, Pid}} ->
            Monitor = monitor(process, Pid),
            From ! {Ref, ok},
            log(Notes, Ends, Watched#{Monitor => Id});
        {ask, From, Ref, size} -> From ! {Ref, length(Notes) + length(Ends)}, log(Notes, Ends, Watched);
        {ask, From, Ref, take} -> From ! {Ref, {lists:reverse(Notes), lists:sort(Ends)}}, log([], [], Watched);
        {'DOWN', Monitor, process, _, Reason} ->
            log(Notes, [[maps:get(Monitor, Watched), " ", why(Reason)] | Ends], Watched)
    end.

settled(Result, State = #{log := Log, defined := Defined, root := Root, dynamic := Dynamic}) ->
    settle(4, -1, Log, Defined),
    {Noted, Ends} = ask(Log, take),
    Notes = [lists:flatten(Note) || Note <- Noted],
    {Ended, Next} = receive
        {'EXIT', Root, Reason} -> {["ended ", why(Reason)], State#{root := none}}
    after 0 -> {"", State}
    end,
    %% A dynamic supervisor stops its children all at once.
    Order = case Dynamic of true -> lists:sort(Notes); false -> Notes end,
    Parts = [Result, lists:join(" ", Order), lists:join(", ", Ends), Ended],
    {lists:flatten(lists:join("; ", [Part || Part <- Parts, lists:flatten(Part) =/= ""])), Next}.

%% Waits until nothing was noted for some rounds in which each supervisor answered.
settle(0, _, _, _) -> ok;
settle(Left, Before, Log, Defined) ->
    [catch supervisor:which_children(list_to_atom(Name)) || Name <- Defined, whereis(list_to_atom(Name)) =/= undefined],
    receive after 1 -> ok end,
    case ask(Log, size) of
        Before -> settle(Left - 1, Before, Log, Defined);
        Size -> settle(4, Size, Log, Defined)
    end.

%% Random scenarios.

random(Number) ->
    case Number rem 2 of
        0 -> io:format("# random ~b: processes~n", [Number]), random_processes();
        1 -> io:format("# random ~b: a tree~n", [Number]), random_tree()
    end,
    io:format("~n").

one_of(List) -> lists:nth(rand:uniform(length(List)), List).

random_processes() ->
    Names = ["a", "b", "c", "d", "e"],
    State = lists:foldl(fun(Number, S) -> random_step(Number, Names, S) end,
                        perform("start a b c d e", fresh()), lists:seq(1, 25)),
    clear(State).

random_step(Number, Names, State = #{live := Live, pids := Pids}) ->
    Alive = [Name || Name <- Names, lists:member(pid(Name, State), Live)],
    case Alive =:= [] orelse rand:uniform(8) =:= 1 of
        true when length(Alive) < length(Names) ->
            perform("start " ++ one_of(Names -- Alive), State);
        _ ->
            Who = one_of(Alive),
            Label = "m" ++ integer_to_list(Number),
            Reasons = ["normal", "shutdown", "killed", "boom", "bang"],
            %% An error with the name of another end is an error nevertheless.
            Errors = ["boom", "timeout", "normal", "shutdown", "killed"],
            Labels = ["m" ++ integer_to_list(N) || N <- lists:seq(1, Number)],
            Name = one_of(["n1", "n2"]),
            Other = one_of([N || {N, _} <- Pids, lists:member(N, Names)] -- [Who]),
            Op = one_of([["link ", Other], ["link ", Other], ["link ", Other], ["link ", Other], ["unlink ", Other],
                         ["trap on"], ["trap on"], ["trap on"], ["monitor ", Other, " ", Label], ["monitor ", Other, " ", Label],
                         ["signal ", Other, " normal"], ["send ", Other, " x"], ["register ", Name, " ", Other],
                         ["monitor ", Other, " ", Label], ["monitor ", Other, " ", Label], ["demonitor ", one_of(Labels)],
                         ["trap ", one_of(["on", "off"])], ["exit ", one_of(Reasons)], "panic", "return",
                         ["error ", one_of(Errors)], ["error ", one_of(Errors)],
                         ["signal ", one_of([Who, Other]), " ", one_of(["kill" | Reasons])],
                         ["signal ", Other, " ", one_of(["kill" | Reasons])],
                         ["send ", Other, " x, send ", Other, " y, exit ", one_of(Reasons)],
                         ["spawn_link z", integer_to_list(Number), " dies ", one_of(Reasons)],
                         ["spawn_link z", integer_to_list(Number), " fails ", one_of(Errors)],
                         ["spawn_monitor z", integer_to_list(Number), " ", Label, " fails ", one_of(Errors)],
                         ["spawn_monitor z", integer_to_list(Number), " ", Label, " dies ", one_of(Reasons)],
                         ["register ", Name, " ", one_of([Who, Other])], ["unregister ", Name], ["whereis ", Name],
                         ["send_name ", Name, " x"]]),
            perform(lists:flatten([Who, ": ", Op]), State)
    end.

random_tree() ->
    Inner = rand:uniform(2) =:= 1,
    Dynamic = rand:uniform(8) =:= 1,
    Auto = one_of(["never", "never", "never", "any_significant", "all_significant"]),
    Restarts = ["permanent", "permanent", "transient", "temporary"],
    Kinds = ["worker", "worker", "worker", "worker", "brutal", "once", "deaf"],
    Child = fun(Id) ->
        Restart = one_of(Restarts),
        Significant = Auto =/= "never" andalso Restart =/= "permanent" andalso rand:uniform(2) =:= 1,
        [Id, " ", one_of(Kinds), " ", Restart, case Significant of true -> " significant"; false -> "" end]
    end,
    Strategies = ["one_for_one", "one_for_all", "rest_for_one"],
    Define = fun(Name, By, Children) ->
        Line = ["define ", Name, " ", one_of(Strategies), " ", integer_to_list(rand:uniform(4) - 1), " ", By, " : ",
                lists:join(", ", Children)],
        fun(State) -> perform(lists:flatten(Line), State) end
    end,
    Plain = fun(Id) -> [Id, " ", one_of(Kinds), " ", one_of(Restarts)] end,
    Begun = case {Dynamic, Inner} of
        {true, _} ->
            Line = ["define root dynamic ", integer_to_list(rand:uniform(4) - 1), " never : t template ", one_of(Restarts)],
            perform(lists:flatten(Line), fresh());
        {_, false} -> (Define("root", Auto, [Child(Id) || Id <- ["a", "b", "c"]]))(fresh());
        {_, true} ->
            First = (Define("inner", "never", [Plain(Id) || Id <- ["x", "y"]]))(fresh()),
            Children = [Child("a"), ["inner supervisor ", one_of(["permanent", "transient"])], Child("b")],
            (Define("root", Auto, Children))(First)
    end,
    Started = perform("tree root", Begun),
    Workers = case {Dynamic, Inner} of
        {true, _} -> ["w1", "w2", "w3"];
        {_, true} -> ["a", "b", "x", "y"];
        _ -> ["a", "b", "c"]
    end,
    Last = lists:foldl(fun(_, State) -> random_tree_step(Dynamic, Workers, State) end, Started, lists:seq(1, 12)),
    clear(perform("stop", Last)).

random_tree_step(Dynamic, Workers, State) ->
    Who = one_of(Workers),
    Reasons = ["normal", "shutdown", "boom", "panic", "error boom", "error normal"],
    Sup = case Who of "x" -> "inner"; "y" -> "inner"; _ -> "root" end,
    Tell = [["tell ", Who, " ", one_of(Reasons)], ["tell ", Who, " ", one_of(Reasons)], ["kill ", Who]],
    Manage = case Dynamic of
        true -> ["another root", "another root", ["terminate root ", Who]];
        false -> [["terminate ", Sup, " ", Who], ["restart ", Sup, " ", Who], ["delete ", Sup, " ", Who],
                  ["add ", Sup, " ", Who, " worker ", one_of(["permanent", "temporary"])], ["count ", Sup],
                  ["which ", Sup]]
    end,
    perform(lists:flatten(one_of(Tell ++ Manage)), State).
