//! Compiles the clients in `c/` with the system's compiler.

use std::env;
use std::path::Path;
use std::process::Command;

/// Where Debian has the headers of libpq and libmariadb.
const HEADERS: [&str; 2] = ["-I/usr/include/postgresql", "-I/usr/include/mariadb"];
const SOURCES: [&str; 7] =
    ["hiredis", "libpq", "libmariadb", "libcurl", "fortified", "plain", "pitfalls"];

fn run(command: &mut Command) {
    let status = command.status();
    assert!(status.is_ok_and(|status| status.success()), "failed: {command:?}");
}

fn compiler() -> Command {
    let mut compiler = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-O2", "-g1", "-fPIC", "-Wall", "-Wextra", "-Wno-format-truncation"]);
    // Some compilers define it by themselves.
    compiler.args(["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]).args(HEADERS);
    compiler
}

fn main() {
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let out = Path::new(&out);
    let mut archive = Command::new("ar");
    archive.arg("crs").arg(out.join("libclients.a"));
    for source in SOURCES {
        let object = out.join(format!("{source}.o"));
        run(compiler().arg("-c").arg(format!("c/{source}.c")).arg("-o").arg(&object));
        archive.arg(object);
    }
    run(&mut archive);
    let loaded = out.join("libloaded.so");
    run(compiler().args(["-shared", "c/loaded.c", "-o"]).arg(&loaded));
    println!("cargo::rustc-env=LOADED={}", loaded.display());
    println!("cargo::rustc-env=ARCHIVE={}", out.join("libclients.a").display());
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=clients");
    for library in ["hiredis", "pq", "mariadb"] {
        println!("cargo::rustc-link-lib={library}");
    }
}
