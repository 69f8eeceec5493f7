%% The ledger: a gen_server on a node of Erlang. It counts sales, and watches the stock.
-module(ledger).
-behaviour(gen_server).
-export([start/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start() -> gen_server:start({local, ledger}, ?MODULE, [], []).

init([]) -> {ok, #{sales => 0}}.

handle_call({sold, Item}, _From, #{sales := Sales} = State) ->
    {reply, {Sales + 1, Item}, State#{sales := Sales + 1}};
handle_call({watch, Till}, _From, State) ->
    Monitor = monitor(process, {stock, 'three_stock@127.0.0.1'}),
    {reply, ok, State#{monitor => Monitor, till => Till}}.

handle_cast(_, State) -> {noreply, State}.

handle_info({'DOWN', Monitor, process, _, Reason}, #{monitor := Monitor, till := Till} = State) ->
    Till ! {stock, Reason},
    {noreply, State}.
