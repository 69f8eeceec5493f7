//! Look at `spawn`: it starts a process and returns a handle, which is a future of the process's
//! result.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

fn main() -> Result<(), procession::Exit> {
    procession::run(async {
        let process = procession::spawn(async { "hello from a process" });
        let greeting = process.await?;
        println!("{greeting}");
        assert_eq!(greeting, "hello from a process");
        Ok(())
    })
}
