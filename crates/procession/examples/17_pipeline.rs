//! Look at the two bounded channels: at most four files wait for a hasher, and at most four results
//! wait to be collected. So a slow stage slows the stage before it down, and memory stays bounded,
//! however many files there are. The progress is a watch: its reader sees the latest state, and
//! never holds the work up.
//!
//! The first stage is a program of the system. Its output is read line by line.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::collections::BTreeMap;
use std::error::Error;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::Path;

use futures_lite::io::BufReader;
use futures_lite::{AsyncBufReadExt, StreamExt};
use procession::os_process::{Command, Stdio};
use procession::sync::channel::{Receiver, Sender};
use procession::sync::{channel, watch};
use procession::{blocking, fs, spawn};

const WAITING: usize = 4;
const HASHERS: usize = 3;

#[derive(Clone, Copy, Default)]
struct Progress {
    found: usize,
    hashed: usize,
}

/// Lists the files below a directory.
async fn find(
    below: &Path,
    files: Sender<String>,
    progress: watch::Sender<Progress>,
) -> io::Result<()> {
    let mut find = Command::new("find");
    let find = find.arg(below).args(["-type", "f"]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = find.spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    while let Some(line) = lines.next().await {
        progress.send_modify(|progress| progress.found += 1);
        // If nobody hashes any more, the program is killed.
        files.send(line?).await.map_err(io::Error::other)?;
    }
    let status = child.wait().await?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

async fn hash(
    files: Receiver<String>,
    hashes: Sender<(String, u64)>,
    progress: watch::Sender<Progress>,
) -> io::Result<()> {
    while let Some(file) = files.recv().await {
        let bytes = fs::read(&file).await?;
        let hash = blocking(|| {
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            hasher.finish()
        });
        progress.send_modify(|progress| progress.hashed += 1);
        hashes.send((file, hash)).await.map_err(io::Error::other)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    procession::run(async {
        let below = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let (progress, mut seen) = watch::channel(Progress::default());
        let (sends_files, files) = channel::bounded(WAITING);
        let (sends_hashes, hashes) = channel::bounded(WAITING);

        let mut stages: Vec<_> = (0..HASHERS)
            .map(|_| spawn(hash(files.clone(), sends_hashes.clone(), progress.clone())))
            .collect();
        stages.push(spawn(async move { find(&below, sends_files, progress).await }));
        drop((files, sends_hashes));
        let reports = spawn(async move {
            while seen.changed().await.is_ok() {
                let Progress { found, hashed } = *seen.borrow_and_update();
                println!("{hashed} of {found} files");
            }
            *seen.borrow()
        });

        let mut results = BTreeMap::new();
        while let Some((file, hash)) = hashes.recv().await {
            results.insert(file, hash);
        }
        for stage in stages {
            stage.await??;
        }
        let last = reports.await?;
        assert_eq!((last.found, last.hashed), (results.len(), results.len()));
        assert!(results.keys().any(|file| file.ends_with("17_pipeline.rs")));
        Ok(())
    })
}
