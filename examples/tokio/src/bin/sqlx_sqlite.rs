//! Look at `transfer`: `sqlx` runs unchanged in processes, with a pool of connections to SQLite. If
//! a process is terminated in the middle of a transaction, the transaction is rolled back:
//! everything that the process holds is dropped, in tokio's context.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::error::Error;
use std::future::pending;
use std::time::Duration;

use procession::sync::channel;
use procession::{Exit, spawn};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use sqlx::{Row, Sqlite, Transaction};

const ACCOUNTS: i64 = 10;
const PROCESSES: i64 = 8;
const TRANSFERS: i64 = 25;

/// Moves `amount` from one account to another. The caller must commit.
async fn transfer(
    pool: &SqlitePool,
    from: i64,
    to: i64,
    amount: i64,
) -> sqlx::Result<Transaction<'static, Sqlite>> {
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    for (account, change) in [(from, -amount), (to, amount)] {
        let update = sqlx::query("UPDATE accounts SET balance = balance + ? WHERE id = ?");
        update.bind(change).bind(account).execute(&mut *transaction).await?;
    }
    Ok(transaction)
}

async fn balances(pool: &SqlitePool) -> sqlx::Result<Vec<i64>> {
    let rows = sqlx::query("SELECT balance FROM accounts ORDER BY id").fetch_all(pool).await?;
    rows.iter().map(|row| row.try_get("balance")).collect()
}

async fn work(pool: SqlitePool) -> Result<(), Box<dyn Error>> {
    sqlx::query("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
        .execute(&pool)
        .await?;
    for account in 0..ACCOUNTS {
        sqlx::query("INSERT INTO accounts VALUES (?, 100)").bind(account).execute(&pool).await?;
    }
    let processes: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let pool = pool.clone();
            spawn(async move {
                for number in 0..TRANSFERS {
                    let (from, to) =
                        ((process + number) % ACCOUNTS, (process + 3 * number + 1) % ACCOUNTS);
                    transfer(&pool, from, to, number).await?.commit().await?;
                }
                sqlx::Result::<()>::Ok(())
            })
        })
        .collect();
    for process in processes {
        process.await??;
    }
    let before = balances(&pool).await?;
    assert_eq!(before.iter().sum::<i64>(), 100 * ACCOUNTS, "{before:?}");
    println!("after {} transfers: {before:?}", PROCESSES * TRANSFERS);

    let (begun, has_begun) = channel::bounded(1);
    let dies = spawn({
        let pool = pool.clone();
        async move {
            let _transaction = transfer(&pool, 0, 1, 50).await?;
            begun.send(()).await.expect("the other waits");
            pending::<sqlx::Result<()>>().await
        }
    });
    has_begun.recv().await.expect("it gets that far");
    procession::process::kill(dies.pid());
    assert_eq!(dies.await.err(), Some(Exit::Killed));
    assert_eq!(balances(&pool).await?, before, "nothing was transferred");
    pool.close().await;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("procession-sqlx-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let options =
        SqliteConnectOptions::new().filename(folder.join("accounts.db")).create_if_missing(true);
    let options =
        options.journal_mode(SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(30));
    // The default scheduler.
    let result = procession::run(async {
        let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await?;
        work(pool).await
    });
    std::fs::remove_dir_all(&folder)?;
    result
}

#[test]
fn processes_use_sqlx() {
    main().expect("the database is local");
}
