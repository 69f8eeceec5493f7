# Elixir as a peer of `echo.lua`: calls in both directions, monitors, pings.
[peer] = System.argv()
peer = String.to_atom(peer)
echo = {:echo, peer}

defmodule Back do
  use GenServer
  def init(state), do: {:ok, state}
  def handle_call({:double, number}, _from, state), do: {:reply, 2 * number, state}
end

{:ok, _} = GenServer.start_link(Back, nil, name: Back)

:pong = Node.ping(peer)

terms = [
  1, -1, 1.5, :ok, nil, true, "text", ~c"charlist", [], [1, :two, "three"], {}, {:ok, {1, 2}},
  %{}, %{"a" => 1, :b => [2], 3 => %{c: nil}}, 2 ** 200, <<1::3>>, self(), make_ref(), [a: 1, b: 2],
  &Enum.map/2, String.duplicate("long", 300_000)
]

for term <- terms do
  ^term = GenServer.call(echo, term)
end

^terms = GenServer.call(echo, terms)
{:ok, 42} = GenServer.call(echo, {:back, Back, node(), {:double, 21}})
{:error, _} = GenServer.call(echo, {:back, :nobody, node(), 1})
send(echo, {:to, self(), :hello})

receive do
  :hello -> :ok
after
  5000 -> raise "no message"
end

# By the process that `rpc` asks, and by a function that is not exported.
6 = :gen_server.call({:rex, peer}, {:call, :shop, :sum, [1, 2, 3], self()})

{:error, {:exception, :not_allowed, _}} =
  try do
    :erpc.call(peer, :shop, :sum, [1, 2])
  catch
    kind, reason -> {kind, reason}
  end

monitor = Process.monitor(echo)
send(echo, {:stop})

receive do
  {:DOWN, ^monitor, :process, _, :normal} -> :ok
after
  5000 -> raise "no end"
end

{:noproc, _} =
  try do
    GenServer.call(echo, 1)
  catch
    :exit, reason -> reason
  end

IO.puts("elixir: every reply was right")
