//! The names of a bundle as one tree: every name normalised and checked, no two that are the same on any file system,
//! no file that is also a directory. Takes names as the archive spells them, gives [`BundlePath`]s and the list of
//! directories to make; a name that could harm is an error in words that follow the name.

use super::findings::show;
use crate::names::BundlePath;
use std::collections::{BTreeSet, HashMap, HashSet};

/// What the agent itself writes at the release's root.
const OURS: &str = ".env";

/// A checked name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// The archive's root itself: dropped.
    Root,
    /// A path inside the bundle.
    Inside(BundlePath),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File,
    /// A directory with an entry of its own.
    Told,
    /// A directory that follows from a member inside it.
    Implied,
}

/// All names so far.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: HashMap<String, Node>,
    directories: BTreeSet<BundlePath>,
    refused: HashSet<String>,
    max_directories: usize,
    overgrown: bool,
}

/// Checks one name and takes the harmless variety out of it: one leading `./`, one trailing `/`.
pub(super) fn check_name(name: &[u8]) -> Result<Name, String> {
    if name.contains(&0) {
        // The fields of a header are padded with NULs.
        let start = name.iter().position(|b| *b != 0).unwrap_or(0);
        let end = name.iter().rposition(|b| *b != 0).map_or(0, |end| end + 1);
        let name = show(name.get(start..end).unwrap_or_default());
        return Err(format!("{name} has a NUL in its name"));
    }
    let Ok(text) = std::str::from_utf8(name) else {
        return Err(format!("{} is not UTF-8", show(name)));
    };
    let wrong = |why: &str| Err(format!("{} {why}", show(name)));
    if text.chars().any(char::is_control) {
        return wrong("has control characters in its name");
    }
    if matches!(text, "." | "./" | "/") {
        return Ok(Name::Root);
    }
    if text.starts_with('/') {
        return wrong("is an absolute path");
    }
    let path = text.strip_prefix("./").unwrap_or(text);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.len() > 1024 {
        return wrong("is longer than 1,024 bytes");
    }
    for part in path.split('/') {
        match part {
            "" => return wrong("has an empty path component"),
            "." => return wrong("has a . component"),
            ".." => return wrong("has a .. component"),
            _ if part.len() > 255 => return wrong("has a component over 255 bytes"),
            _ => {}
        }
    }
    let first = path.split('/').next().unwrap_or_default();
    if fold(first) == OURS {
        return wrong("claims the .env that the agent writes");
    }
    match BundlePath::new(path) {
        Ok(path) => Ok(Name::Inside(path)),
        Err(error) => wrong(&error.to_string()),
    }
}

/// The form in which two names are the same on a file system that does not tell cases apart. Character by character,
/// so that the folded form of a directory is the head of the folded form of what is in it.
fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

impl Tree {
    /// An empty tree that takes so many directories.
    pub(super) fn new(max_directories: usize) -> Self {
        Self {
            nodes: HashMap::new(),
            directories: BTreeSet::new(),
            refused: HashSet::new(),
            max_directories,
            overgrown: false,
        }
    }

    /// Adds a file.
    pub(super) fn add_file(&mut self, path: &BundlePath) -> Result<(), String> {
        let key = fold(path.as_str());
        match self.nodes.get(&key) {
            Some(Node::File) => return Err(twice(path)),
            Some(Node::Told | Node::Implied) => return Err(both(path.as_str())),
            None => {}
        }
        self.imply_parents(path.as_str(), &key)?;
        self.nodes.insert(key, Node::File);
        Ok(())
    }

    /// Adds a directory that has an entry of its own.
    pub(super) fn add_directory(&mut self, path: &BundlePath) -> Result<(), String> {
        let key = fold(path.as_str());
        match self.nodes.get(&key) {
            Some(Node::Told) => return Err(twice(path)),
            Some(Node::File) => return Err(both(path.as_str())),
            Some(Node::Implied) | None => {}
        }
        self.imply_parents(path.as_str(), &key)?;
        self.grow(path.as_str());
        self.nodes.insert(key, Node::Told);
        Ok(())
    }

    /// Makes the directories above a path, from the deepest up to the first that is known.
    fn imply_parents(&mut self, path: &str, key: &str) -> Result<(), String> {
        let (mut path, mut key) = (path, key);
        while let (Some((parent, _)), Some((parent_key, _))) =
            (path.rsplit_once('/'), key.rsplit_once('/'))
        {
            (path, key) = (parent, parent_key);
            match self.nodes.get(key) {
                Some(Node::File) => return Err(both(path)),
                Some(_) if self.knows(path) => return Ok(()),
                Some(_) => self.grow(path),
                None => {
                    self.grow(path);
                    if !self.overgrown {
                        self.nodes.insert(key.to_owned(), Node::Implied);
                    }
                }
            }
            if self.overgrown {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether it has exactly this directory.
    pub(super) fn knows(&self, path: &str) -> bool {
        BundlePath::new(path).is_ok_and(|path| self.directories.contains(&path))
    }

    fn grow(&mut self, path: &str) {
        if self.overgrown {
            return;
        }
        if let Ok(path) = BundlePath::new(path) {
            self.directories.insert(path);
        }
        self.overgrown = self.directories.len() > self.max_directories;
    }

    /// Remembers a name that was there and refused, so that nobody calls it missing.
    pub(super) fn note_refused(&mut self, name: &[u8]) {
        if let Ok(text) = std::str::from_utf8(name) {
            let text = text.strip_prefix("./").unwrap_or(text);
            self.refused.insert(text.trim_end_matches('/').to_owned());
        }
    }

    /// Whether a member of this name was there and refused.
    pub(super) fn has_refused(&self, name: &str) -> bool {
        self.refused.contains(name)
    }

    /// Whether there are more directories than a bundle may have.
    pub(super) fn is_overgrown(&self) -> bool {
        self.overgrown
    }

    /// All directories to make, parents first.
    pub(super) fn into_directories(self) -> BTreeSet<BundlePath> {
        self.directories
    }
}

fn twice(path: &BundlePath) -> String {
    format!(
        "{} is there twice (upper and lower case count as the same)",
        show(path.as_str().as_bytes())
    )
}

fn both(path: &str) -> String {
    format!("{} is a file and a directory", show(path.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(text: &str) -> Name {
        Name::Inside(BundlePath::new(text).unwrap())
    }

    #[test]
    fn the_harmless_variety_of_names_is_taken_out() {
        for root in [".", "./", "/"] {
            assert_eq!(check_name(root.as_bytes()), Ok(Name::Root), "{root}");
        }
        assert_eq!(check_name(b"./a/b"), Ok(inside("a/b")));
        assert_eq!(check_name(b"./a/"), Ok(inside("a")));
        assert_eq!(check_name(b".env.template"), Ok(inside(".env.template")));
        assert_eq!(check_name(b"conf/.env"), Ok(inside("conf/.env")));
    }

    #[test]
    fn a_name_that_could_harm_says_why() {
        let long = "x".repeat(256);
        let deep = "x/".repeat(600);
        for (name, why) in [
            (&b"/etc/passwd"[..], "is an absolute path"),
            (b"//", "is an absolute path"),
            (b"../x", "has a .. component"),
            (b"a/../b", "has a .. component"),
            (b"a/..", "has a .. component"),
            (b"", "has an empty path component"),
            (b"a//b", "has an empty path component"),
            (b"a//", "has an empty path component"),
            (b"././a", "has a . component"),
            (b"a/./b", "has a . component"),
            (b"a/.", "has a . component"),
            (b"a\0b", "has a NUL"),
            (b"a\nb", "has control characters"),
            (b"a\x7f", "has control characters"),
            (b"a\xc2\x9bb", "has control characters"),
            (b"a\xff", "is not UTF-8"),
            (long.as_bytes(), "has a component over 255 bytes"),
            (deep.as_bytes(), "is longer than 1,024 bytes"),
            (b".env", "claims the .env"),
            (b"./.ENV", "claims the .env"),
            (b".env/x", "claims the .env"),
        ] {
            let error = check_name(name).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn two_names_that_are_one_on_some_disk_are_refused() {
        let path = |text: &str| BundlePath::new(text).unwrap();
        let mut tree = Tree::new(100);
        tree.add_file(&path("a/b")).unwrap();
        tree.add_file(&path("STRASSE")).unwrap();
        for (name, why) in [
            ("A/B", "twice"),
            ("straße", "twice"),
            ("a", "a file and a directory"),
            ("A", "a file and a directory"),
            ("a/b/c", "a file and a directory"),
            ("A/b/c/d", "a file and a directory"),
        ] {
            let error = tree.add_file(&path(name)).unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
        tree.add_directory(&path("a")).unwrap();
        assert!(tree.add_directory(&path("a")).is_err());
        assert!(tree.add_directory(&path("a/b")).is_err());
        assert!(tree.add_directory(&path("A")).is_err());
    }

    #[test]
    fn directories_come_parents_first_and_in_every_spelling() {
        let path = |text: &str| BundlePath::new(text).unwrap();
        let mut tree = Tree::new(100);
        tree.add_file(&path("a/b/c")).unwrap();
        tree.add_file(&path("A/b/d")).unwrap();
        tree.add_directory(&path("e")).unwrap();
        let directories = tree.into_directories();
        let list: Vec<&str> = directories.iter().map(BundlePath::as_str).collect();
        assert_eq!(list, ["A", "A/b", "a", "a/b", "e"]);
    }

    #[test]
    fn a_forest_of_directories_is_noticed_early() {
        let mut tree = Tree::new(1000);
        for n in 0..2000 {
            let name = format!("{n}/{}", "d/".repeat(400));
            let path = BundlePath::new(name.trim_end_matches('/')).unwrap();
            tree.add_file(&path).unwrap();
        }
        assert!(tree.is_overgrown());
        assert!(tree.into_directories().len() <= 1001);
    }
}
