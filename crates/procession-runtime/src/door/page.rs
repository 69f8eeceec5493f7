//! The page: files that are part of the program.

use super::response::Response;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page, by path.
const FILES: [(&str, &str, &str); 9] = [
    ("", HTML, include_str!("page/index.html")),
    ("style.css", CSS, include_str!("page/style.css")),
    ("app.js", SCRIPT, include_str!("page/app.js")),
    ("table.js", SCRIPT, include_str!("page/table.js")),
    ("format.js", SCRIPT, include_str!("page/format.js")),
    ("timeline.js", SCRIPT, include_str!("page/timeline.js")),
    ("plots.js", SCRIPT, include_str!("page/plots.js")),
    ("graph.js", SCRIPT, include_str!("page/graph.js")),
    ("tree.js", SCRIPT, include_str!("page/tree.js")),
];

/// Returns a file of the page.
pub(super) fn file(path: &str) -> Option<Response> {
    let found = FILES.iter().find(|(name, ..)| *name == path);
    found.map(|(_, content_type, text)| Response::file(content_type, text))
}

#[cfg(test)]
mod tests {
    use super::FILES;

    #[test]
    fn the_page_is_small_and_has_no_inline_code() {
        let size: usize = FILES.iter().map(|(.., text)| text.len()).sum();
        assert!(size < 60 << 10, "the page has {size} bytes");
        let html = FILES[0].2;
        assert!(!html.contains("<style") && !html.contains(" style=") && !html.contains(" on"));
        assert_eq!(
            html.matches("<script").count(),
            html.matches("<script type=\"module\" src=").count()
        );
    }
}
