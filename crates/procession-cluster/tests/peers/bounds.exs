# A node of the BEAM that watches a node of `echo.lua`, which is stopped, goes on, and is killed. Each
# end is told in time: a stopped node after the `net_ticktime` of 4 s, give or take a quarter, and a
# killed one at once. The rest is for scheduling.
[peer, program] = System.argv()
peer = String.to_atom(peer)

signal = fn name -> {_, 0} = System.cmd("kill", ["-" <> name, program]) end

told_after = fn act ->
  monitor = Process.monitor({:echo, peer})
  # Behind the monitor, so that it is there.
  1 = GenServer.call({:echo, peer}, 1)
  begin = System.monotonic_time(:millisecond)
  act.()

  receive do
    {:DOWN, ^monitor, :process, _, :noconnection} -> :ok
  after
    20_000 -> raise "no end is told"
  end

  System.monotonic_time(:millisecond) - begin
end

:pong = Node.ping(peer)
stopped = told_after.(fn -> signal.("STOP") end)
IO.puts("a stopped node is told after #{stopped} ms")
true = stopped in 2_500..6_500

# It goes on, and can be connected to again.
signal.("CONT")

again = fn again ->
  case Node.ping(peer) do
    :pong -> :ok
    :pang -> again.(again)
  end
end

again.(again)
killed = told_after.(fn -> signal.("KILL") end)
IO.puts("a killed node is told after #{killed} ms")
true = killed < 1_000
