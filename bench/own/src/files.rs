//! The workload of files. All of them are in the page cache, so the figures are what the runtimes
//! and the system calls cost, and not the disk.

use std::fs;
use std::path::{Path, PathBuf};

use super::meter::now;
use super::rt;
use super::workload::{
    FS_READ_AT_ONCE, FS_READ_COUNT, FS_READ_LARGE, FS_READ_SMALL, Failed, Outcome, Scale, check,
    each,
};

/// A file that is removed at the end.
struct ScratchFile(PathBuf);

impl ScratchFile {
    fn new(name: &str, length: u64) -> Result<Self, Failed> {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let length = usize::try_from(length).map_err(Failed::error)?;
        fs::write(&path, vec![1; length]).map_err(Failed::error)?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // Ignored: the system removes what is left there.
        let _ = fs::remove_file(&self.0);
    }
}

async fn whole(path: &Path, count: u64) -> Result<u64, Failed> {
    let mut bytes = 0;
    for _ in 0..count {
        bytes += rt::fs::read(path).await.map_err(Failed::error)?.len() as u64;
    }
    Ok(bytes)
}

pub(super) async fn read(scale: Scale) -> Outcome {
    let small = ScratchFile::new("fs-read-small", FS_READ_SMALL as u64)?;
    let count = scale.of(FS_READ_COUNT);
    let start = now();
    let mut bytes = whole(&small.0, count).await?;
    let alone = each(start, count);

    let each_count = count.div_ceil(FS_READ_AT_ONCE);
    let start = now();
    let readers: Vec<_> = (0..FS_READ_AT_ONCE)
        .map(|_| {
            let path = small.0.clone();
            rt::spawn(async move { whole(&path, each_count).await })
        })
        .collect();
    for reader in readers {
        bytes += reader.await??;
    }
    let many = each(start, each_count * FS_READ_AT_ONCE);
    let files = count + each_count * FS_READ_AT_ONCE;
    check("the bytes of all files", files * FS_READ_SMALL as u64, bytes)?;

    let length = scale.of(FS_READ_LARGE);
    let large = ScratchFile::new("fs-read-large", length)?;
    let mut file = rt::fs::File::open(&large.0).await.map_err(Failed::error)?;
    let mut buffer = [0; FS_READ_SMALL];
    let (start, mut bytes, mut reads) = (now(), 0, 0);
    loop {
        match rt::read_part(&mut file, &mut buffer).await.map_err(Failed::error)? {
            0 => break,
            part => (bytes, reads) = (bytes + part as u64, reads + 1),
        }
    }
    let part = each(start, reads);
    check("the bytes of the large file", length, bytes)?;
    Ok(vec![alone, many, part])
}
