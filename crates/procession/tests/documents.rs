//! The documents of the repository: their links lead somewhere, also from the registry; the lineage
//! names tests that exist, and its reasons; tables of features list what the manifest has; and all
//! pages together stay short.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is here")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Adds the Markdown files of a folder and of the folders below it, without builds.
fn add_documents(folder: &Path, documents: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            add_documents(&path, documents);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            documents.push(path);
        }
    }
}

/// Returns the text without blocks of code, because the brackets in code are no links.
fn prose(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the targets of links: `[text](target)` and `[name]: target`.
fn links(prose: &str) -> Vec<String> {
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = prose.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
    inline.chain(named.map(|(_, target)| target)).map(str::to_owned).collect()
}

/// Returns the anchors of headings, as a web page of the repository has them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for heading in prose(text).lines().filter(|line| line.starts_with('#')) {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>();
        let count = found.entry(anchor.clone()).or_default();
        all.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    all
}

#[test]
fn all_links_lead_somewhere() {
    let mut documents = Vec::new();
    add_documents(&root(), &mut documents);
    assert!(documents.len() > 30, "the documents were found");
    let mut broken = Vec::new();
    for document in &documents {
        let folder = document.parent().expect("it lies in a folder");
        for link in links(&prose(&read(document))) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { document.clone() } else { folder.join(path) };
            let is_page = target.extension().is_some_and(|extension| extension == "md");
            let leads = target.exists()
                && (anchor.is_empty() || !is_page || anchors(&read(&target)).contains(anchor));
            if !leads {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

/// Each row of the page names its tests, models and canaries, with the files in which they are.
#[test]
fn the_lineage_names_tests_that_exist() {
    let page = root().join("docs/LINEAGE.md");
    let text = read(&page);
    let (mut count, mut missing) = (0, Vec::new());
    for link in text.split("[`").skip(1) {
        let Some((name, rest)) = link.split_once("`](") else { continue };
        let path = root().join("docs").join(rest.split(')').next().unwrap_or_default());
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        count += 1;
        let is_file = path
            .components()
            .any(|part| part.as_os_str().to_string_lossy().trim_end_matches(".rs") == name);
        if !is_file && !read(&path).contains(&format!("fn {name}(")) {
            missing.push(format!("{name} in {}", path.display()));
        }
    }
    assert!(count > 250, "the page links its tests: {count}");
    assert!(missing.is_empty(), "these tests are not there:\n{}", missing.join("\n"));
}

/// What differs from a source is in a row of the page, with the name of what is missing here or
/// with the reason, however short the page becomes.
#[test]
fn the_lineage_keeps_its_reasons() {
    let text = read(&root().join("docs/LINEAGE.md"));
    let expected = [
        ("A1", "payloads"),
        ("A10", "3.3 times"),
        ("A12", "AsyncWork"),
        ("B9", "shuffle"),
        ("C1", "`main` returns"),
        ("C8", "argues for 1 MiB"),
        ("C8", "names the overflow"),
        ("C8", "only new ones are balanced"),
        ("C10", "`dup2`"),
        ("C10", "`getsockopt`"),
        ("C11", "`set_et_mode`"),
        ("E4", "`Logger`, because"),
    ];
    for (row, words) in expected {
        let begin = format!("| {row} |");
        let row = text.lines().find(|line| line.starts_with(&begin));
        // The cells are the number, the source, what is here, and the tests.
        let here = row.and_then(|row| row.split('|').nth(3)).unwrap_or_default();
        assert!(here.contains(words), "{begin} no longer says {words:?}: {here:?}");
    }
}

/// Returns the value of a key of the section `[workspace.package]`.
fn of_workspace(key: &str) -> Option<String> {
    let manifest = read(&root().join("Cargo.toml"));
    let (_, section) = manifest.split_once("[workspace.package]\n").expect("it is a workspace");
    let section = section.split("\n[").next().unwrap_or_default();
    let value = section.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
    Some(value.trim_matches('"').to_owned())
}

/// Returns the README for the registry, where relative links lead nowhere. If the workspace states
/// a repository, links lead there. Otherwise only the text of a link is left, with emphasis.
fn published(readme: &str) -> String {
    let version = of_workspace("version").expect("crates have a version");
    let repository = of_workspace("repository");
    let mut page = "<!-- `tests/documents.rs` makes this page from README.md. -->\n".to_owned();
    let mut rest = readme;
    while let Some((before, after)) = rest.split_once("](") {
        let (target, after) = after.split_once(')').expect("a link has an end");
        let (before, text) = before.rsplit_once('[').expect("a link has a text");
        let picture = before.strip_suffix('!');
        let kind = if picture.is_some() { "raw" } else { "blob" };
        page.push_str(&match &repository {
            _ if target.contains("://") => format!("{before}[{text}]({target})"),
            Some(address) => format!("{before}[{text}]({address}/{kind}/v{version}/{target})"),
            None => match picture {
                Some(before) => before.to_owned(),
                None if text.starts_with('`') => format!("{before}{text}"),
                None => format!("{before}*{text}*"),
            },
        });
        rest = after;
    }
    page.push_str(rest);
    if repository.is_none() {
        page = page.replace("\n\n\n", "\n\n");
        page.push_str("\nThe documents are in the folder `docs` of the repository.\n");
    }
    page
}

/// `RENEW=1 cargo test -p procession --test documents` makes the page again.
#[test]
fn the_page_of_the_registry_is_made_from_the_readme() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.markdown");
    let made = published(&read(&root().join("README.md")));
    if env::var_os("RENEW").is_some() {
        fs::write(&page, &made).expect("the page can be written");
    }
    assert!(read(&page) == made, "the page differs: `RENEW=1` makes it again");
}

/// The registry resolves no relative link of a crate without a repository, and cargo puts the page
/// of a crate beside its manifest.
#[test]
fn pages_of_the_registry_have_links_that_lead_somewhere_there() {
    let mut pages = 0;
    for folder in fs::read_dir(root().join("crates")).expect("the folder can be read") {
        let folder = folder.expect("it can be listed").path();
        let manifest = read(&folder.join("Cargo.toml"));
        if manifest.contains("\npublish = false\n") {
            continue;
        }
        let names_it = manifest.contains("\nrepository.workspace = true\n");
        assert_eq!(names_it, of_workspace("repository").is_some(), "{}", folder.display());
        let page = manifest.lines().find_map(|line| line.strip_prefix("readme = "));
        let Some(page) = page.map(|page| page.trim_matches('"')) else { continue };
        pages += 1;
        assert!(!page.contains('/'), "{page} of {} lies elsewhere", folder.display());
        for link in links(&prose(&read(&folder.join(page)))) {
            assert!(link.contains("://"), "{}: {link}", folder.join(page).display());
        }
    }
    assert!(pages > 10, "the pages were found");
}

/// Whether the document is for readers, and not the record of a measurement or of a test.
fn is_for_readers(path: &str) -> bool {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    ["", "programs", "crates/procession/examples"].contains(&folder)
        || folder.starts_with("docs")
        || folder.starts_with("crates/") && folder.matches('/').count() == 1
        || path == "bench/README.md"
}

/// A reader has to find a page among the others, so if a page grows, another one is cut.
#[test]
fn the_documents_stay_short() {
    let (root, mut documents) = (root(), Vec::new());
    add_documents(&root, &mut documents);
    documents.retain(|document| {
        let path = document.strip_prefix(&root).expect("it is below the root");
        is_for_readers(&path.to_string_lossy())
    });
    let words = documents.iter().map(|document| read(document).split_whitespace().count());
    let words: usize = words.sum();
    assert!((20_000..=50_000).contains(&words), "the documents have {words} words");
}

#[test]
fn tables_of_features_list_what_the_manifest_has() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = read(&folder.join("Cargo.toml"));
    let (_, features) = manifest.split_once("[features]\n").expect("it has features");
    let section = features.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split_once(" = ").map(|(name, _)| name));
    // Neither is for programs to name.
    let expected: BTreeSet<_> =
        names.filter(|name| !name.starts_with('#') && !["default", "sim"].contains(name)).collect();
    assert!(expected.len() > 10, "the features were found: {expected:?}");
    let source = read(&folder.join("src/lib.rs"));
    let mut pages = vec![("src/lib.rs", source.replace("//! ", ""))];
    pages.push(("README.md", read(&root().join("README.md"))));
    let mut tables = 0;
    for (page, text) in &pages {
        for table in text.split("| feature | what it adds |\n").skip(1) {
            let rows = table.lines().take_while(|line| line.starts_with('|')).skip(1);
            let listed: BTreeSet<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
            assert_eq!(listed, expected, "the table of features in {page}");
            tables += 1;
        }
    }
    assert!(tables > 0, "a page has a table of features");
}

/// Adds the programs below a folder, which are files that can be executed.
fn add_programs(folder: &Path, programs: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let about = path.metadata().expect("it is there");
        if about.is_dir() && !path.ends_with("target") {
            add_programs(&path, programs);
        } else if about.is_file() && about.permissions().mode() & 0o100 != 0 {
            programs.push(path);
        }
    }
}

/// A script that no check runs stops working without anybody noticing. `.ci/run` and `.ci/deep` run
/// all of them, some by other scripts.
#[test]
fn a_check_runs_every_script() {
    let (root, mut left) = (root(), Vec::new());
    for folder in [".ci", "bench"] {
        add_programs(&root.join(folder), &mut left);
    }
    assert!(left.len() > 20, "the scripts were found: {left:?}");
    let mut run = vec![root.join(".ci/run"), root.join(".ci/deep")];
    left.retain(|script| !run.contains(script));
    while let Some(script) = run.pop() {
        let text = read(&script);
        let named = left.extract_if(.., |other| {
            let path = other.strip_prefix(&root).expect("it is below the root");
            let name = other.file_name().expect("it has a name").to_string_lossy();
            let is_near = other.parent() == script.parent();
            text.contains(&*path.to_string_lossy()) || is_near && text.contains(&format!("/{name}"))
        });
        run.extend(named);
    }
    assert!(left.is_empty(), "no check runs {left:?}");
}
