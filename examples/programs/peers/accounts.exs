defmodule Accounts.Ledger do
  @moduledoc "Keeps the balances in a file, so that they outlive their accounts."
  use GenServer

  def start_link(path), do: GenServer.start_link(__MODULE__, path, name: __MODULE__)
  def balance(name), do: GenServer.call(__MODULE__, {:balance, name})
  def put(name, balance), do: GenServer.call(__MODULE__, {:put, name, balance})

  @impl true
  def init(path) do
    file = File.open!(path, [:read, :append])
    {:ok, {file, file |> IO.stream(:line) |> Map.new(&parse/1)}}
  end

  defp parse(line) do
    [name, balance] = String.split(line)
    {name, String.to_integer(balance)}
  end

  @impl true
  def handle_call({:balance, name}, _from, {_, balances} = state) do
    {:reply, Map.get(balances, name, 0), state}
  end

  def handle_call({:put, name, balance}, _from, {file, balances}) do
    :ok = IO.write(file, "#{name} #{balance}\n")
    {:reply, :ok, {file, Map.put(balances, name, balance)}}
  end
end

defmodule Accounts.Account do
  @moduledoc "An account. It closes when nobody has used it for a minute."
  use GenServer, restart: :transient

  defstruct [:name, :balance, visits: 0]

  @idle 60_000

  def start_link(name), do: GenServer.start_link(__MODULE__, name, name: via(name))

  def open(name) do
    case DynamicSupervisor.start_child(Accounts.Open, {__MODULE__, name}) do
      {:ok, _} -> :ok
      {:error, {:already_started, _}} -> {:error, "the account is open"}
      {:error, _} -> {:error, "the account does not open"}
    end
  end

  def show(name), do: call(name, :show)
  def deposit(name, amount), do: call(name, {:deposit, amount})
  def withdraw(name, amount), do: call(name, {:withdraw, amount})
  def visit(name), do: cast(name, :visit)
  def crash(name), do: cast(name, :crash)

  defp via(name), do: {:via, Registry, {Accounts.Registry, name}}

  defp call(name, request) do
    GenServer.call(via(name), request, 20_000)
  catch
    :exit, _ -> {:error, "the account does not answer"}
  end

  defp cast(name, request), do: GenServer.cast(via(name), request)

  @impl true
  def init(name) do
    {:ok, %__MODULE__{name: name, balance: Accounts.Ledger.balance(name)}, @idle}
  end

  @impl true
  def handle_call(:show, _from, account) do
    {:reply, {:ok, "#{account.balance} #{account.visits}"}, account, @idle}
  end

  def handle_call({:deposit, amount}, _from, account), do: change(account, amount)

  def handle_call({:withdraw, amount}, _from, account) when amount > account.balance do
    {:reply, {:error, "the balance is #{account.balance}"}, account, @idle}
  end

  def handle_call({:withdraw, amount}, _from, account), do: change(account, -amount)

  defp change(account, amount) do
    account = %{account | balance: account.balance + amount}
    :ok = Accounts.Ledger.put(account.name, account.balance)
    {:reply, {:ok, "#{account.balance}"}, account, @idle}
  end

  @impl true
  def handle_cast(:visit, account) do
    {:noreply, %{account | visits: account.visits + 1}, @idle}
  end

  def handle_cast(:crash, account), do: raise("#{account.name} was told to crash")

  @impl true
  def handle_info(:timeout, account), do: {:stop, :normal, account}
end

defmodule Accounts.Server do
  @moduledoc "Answers a command in each line, with a task for each connection."
  use Task, restart: :permanent

  alias Accounts.Account

  def start_link(port), do: Task.start_link(__MODULE__, :listen, [port])

  def listen(port) do
    options = [:binary, packet: :line, active: false, reuseaddr: true, ip: {127, 0, 0, 1}]
    {:ok, listener} = :gen_tcp.listen(port, options)
    {:ok, port} = :inet.port(listener)
    IO.puts("accounts: listening on 127.0.0.1:#{port}")
    accept(listener)
  end

  defp accept(listener) do
    {:ok, socket} = :gen_tcp.accept(listener)
    {:ok, pid} = Task.Supervisor.start_child(Accounts.Connections, fn -> serve(socket) end)
    :ok = :gen_tcp.controlling_process(socket, pid)
    accept(listener)
  end

  defp serve(socket) do
    with {:ok, line} <- :gen_tcp.recv(socket, 0),
         :ok <- :gen_tcp.send(socket, answer(String.split(line))) do
      serve(socket)
    end
  end

  defp answer(words) do
    case run(words) do
      :ok -> "ok\n"
      {:ok, text} -> "ok #{text}\n"
      {:error, text} -> "error #{text}\n"
    end
  end

  defp run(["open", name]), do: Account.open(name)
  defp run(["show", name]), do: Account.show(name)
  defp run(["visit", name]), do: Account.visit(name)
  defp run(["crash", name]), do: Account.crash(name)
  defp run(["deposit", name, amount]), do: with_amount(amount, &Account.deposit(name, &1))
  defp run(["withdraw", name, amount]), do: with_amount(amount, &Account.withdraw(name, &1))
  defp run(_), do: {:error, "unknown command"}

  defp with_amount(text, fun) do
    case Integer.parse(text) do
      {amount, ""} when amount > 0 -> fun.(amount)
      _ -> {:error, "an amount is a positive number"}
    end
  end
end

defmodule Accounts do
  @moduledoc "The tree: what depends on a part is started again with it."
  use Supervisor

  def start_link(path), do: Supervisor.start_link(__MODULE__, path, name: __MODULE__)

  @impl true
  def init(path) do
    children = [
      {Accounts.Ledger, path},
      {Registry, keys: :unique, name: Accounts.Registry},
      {DynamicSupervisor, name: Accounts.Open, max_restarts: 1_000},
      {Task.Supervisor, name: Accounts.Connections},
      {Accounts.Server, 0}
    ]

    Supervisor.init(children, strategy: :rest_for_one)
  end
end

[path] = System.argv()
{:ok, _} = Accounts.start_link(path)

{:ok, _} =
  System.trap_signal(:sigterm, fn ->
    Supervisor.stop(Accounts)
    System.halt(0)
  end)

Process.sleep(:infinity)
