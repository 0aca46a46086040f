//! The pages: what they link to is there, and `docs/testing.md` lists the tests of this package. Addresses in the net are not tried, nor is what
//! is written as code.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

/// What of `dir` ends with `.ending`, by its path.
fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut all: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == ending)).collect();
    all.sort();
    all
}

/// The lines of a page that are no code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The names by which a page's headings are linked to.
fn anchors(page: &str) -> Vec<String> {
    let headings = prose(page)
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let named = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    };
    headings.map(|h| h.trim().to_lowercase().chars().filter_map(named).collect()).collect()
}

/// The links of a page in `dir` that lead nowhere.
fn dead(dir: &Path, page: &str) -> Vec<String> {
    let is_dead = |link: &&str| {
        let (path, anchor) = link.split_once('#').unwrap_or((*link, ""));
        if link.contains("://") {
            return false;
        }
        let target = dir.join(path);
        let there = match path {
            "" => Ok(page.to_owned()),
            _ if target.extension().is_none_or(|e| e != "md") => return !target.exists(),
            _ => fs::read_to_string(target),
        };
        !there.is_ok_and(|there| anchor.is_empty() || anchors(&there).iter().any(|a| a == anchor))
    };
    let links = prose(page).flat_map(|line| line.split("](").skip(1).filter_map(|rest| rest.split_once(')')));
    links.map(|(link, _)| link).filter(is_dead).map(String::from).collect()
}

#[test]
fn links_lead_somewhere() {
    let root = root();
    let mut pages = files(&root, "md");
    pages.extend(files(&root.join("docs"), "md"));
    pages.extend(
        ["fuzz", "tests/guest", "crates/fs2-trace/tests/samples"].map(|dir| root.join(dir).join("README.md")),
    );
    let mut links = 0;
    for path in &pages {
        let page = fs::read_to_string(path).unwrap();
        links += page.matches("](").count();
        assert_eq!(dead(path.parent().unwrap(), &page), [""; 0], "in {}", path.display());
    }
    assert!(links > 30, "{links} links in {} pages", pages.len());
    let page = "# A `b` C\n[a](README.md) [b](docs) [c](#a-b-c) [d](https://nowhere.example/)\n[e](no.md) [f](#a) [g](README.md#none)";
    assert_eq!(dead(&root, page), ["no.md", "#a", "README.md#none"]);
}

#[test]
fn the_page_about_testing_lists_these_tests() {
    let page = fs::read_to_string(root().join("docs/testing.md")).unwrap();
    let rows: Vec<&str> =
        page.lines().filter_map(|l| l.strip_prefix("| ")?.split_once(" | ")).map(|(what, _)| what).collect();
    let is_listed = |program: &str, module: &str| {
        rows.iter().any(|row| {
            row.contains(&format!("`{program}`"))
                && (module.is_empty() || row.contains(&format!("`{module}`")))
        })
    };
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let missing: Vec<String> =
        files(&tests, "rs").iter().map(|p| name(p)).filter(|p| !is_listed(p, "")).collect();
    assert_eq!(missing, [""; 0]);
    for program in ["privileged", "privileged_namespaces", "unprivileged"] {
        let modules = files(&tests.join(program), "rs").iter().map(|p| name(p)).collect::<Vec<_>>();
        let missing: Vec<&String> =
            modules.iter().filter(|m| *m != "main" && !is_listed(program, m)).collect();
        assert!(missing.is_empty(), "{program}: {missing:?}");
    }
}
