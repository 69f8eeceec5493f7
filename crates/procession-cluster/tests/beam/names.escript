#!/usr/bin/env escript
%%! -setcookie secret -kernel prevent_overlapping_partitions false
%% A node of the BEAM that reads the names of a node of Procession as groups of `pg`, and claims
%% names itself.

-mode(compile).

main([Name]) ->
    Node = list_to_atom(Name),
    {ok, _} = net_kernel:start('names_of_the_beam@127.0.0.1', #{name_domain => longnames}),
    {ok, _} = pg:start_link(names),
    pong = net_adm:ping(Node),
    until(fun() -> length(claims(counter)) =:= 1 end),
    Node = node(owner(counter)),

    %% A free name, and an older claim of a name that is taken.
    ok = pg:join(names, {leader, erlang:system_time(microsecond)}, self()),
    ok = pg:join(names, {counter, 0}, self()),
    true = owner(counter) =:= self(),
    until(fun() -> length(claims(counter)) =:= 1 end),
    receive both_are_known -> ok end,
    io:format("done~n"),
    halt().

claims(Name) ->
    [{Time, node(Pid), Pid} || {Claimed, Time} = Group <- pg:which_groups(names), Claimed =:= Name,
                               Pid <- pg:get_members(names, Group)].

owner(Name) ->
    {_, _, Owner} = lists:min(claims(Name)),
    Owner.

until(Condition) ->
    Condition() orelse begin timer:sleep(5), until(Condition) end.
