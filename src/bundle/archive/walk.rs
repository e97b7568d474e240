//! The walk from header to header over a tar in memory, never through a reader: a header that claims a gigabyte costs
//! nothing and a cut body is always noticed. Gives a [`Scan`]: the good members, and everything that is wrong. It goes
//! on after a refused member where it still knows where the next one begins, so that all of them are told together.

use super::super::findings::{Findings, show};
use super::super::headers::{
    BLOCK, Head, Kind, Pax, guess, is_zero, read_head, read_long_name, read_pax,
};
use super::super::tree::{Name, Tree, check_name};
use super::{Archive, Limits, Member};
use crate::code::Code;
use crate::error::Finding;
use crate::names::BundlePath;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// A walk that came to its end, or as far as it could.
#[derive(Debug)]
pub(in crate::bundle) struct Scan {
    /// What is wrong.
    pub(in crate::bundle) findings: Findings,
    /// Whether the walk saw all members; if not, nobody can say what is missing.
    pub(in crate::bundle) complete: bool,
    members: BTreeMap<BundlePath, Member>,
    tree: Tree,
}

impl Scan {
    /// The archive, as far as it is good.
    pub(in crate::bundle) fn into_archive(self, body: Vec<u8>) -> Archive {
        Archive {
            body,
            members: self.members,
            directories: self.tree.into_directories(),
        }
    }

    /// What there is under that name.
    pub(in crate::bundle) fn presence<'a>(&self, body: &'a [u8], name: &str) -> Presence<'a> {
        let member = BundlePath::new(name)
            .ok()
            .and_then(|path| self.members.get(&path));
        if let Some(member) = member {
            Presence::File(body.get(member.range.clone()).unwrap_or_default())
        } else if self.tree.has_refused(name) {
            Presence::Refused
        } else if self.tree.knows(name) {
            Presence::Directory
        } else {
            Presence::Missing
        }
    }
}

/// What an archive has under a name.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bundle) enum Presence<'a> {
    /// A good file, and what it holds.
    File(&'a [u8]),
    /// A directory.
    Directory,
    /// A member that was refused and told.
    Refused,
    /// Nothing.
    Missing,
}

/// Walks over `body`.
pub(in crate::bundle) fn scan(body: &[u8], limits: Limits) -> Scan {
    let mut walk = Walk {
        body,
        at: 0,
        next: Pending::default(),
        count: 0,
        scan: Scan {
            findings: Findings::default(),
            complete: false,
            members: BTreeMap::new(),
            tree: Tree::new(limits.directories),
        },
    };
    if body.len() > limits.bytes {
        walk.invalid(format!(
            "the bundle has {} bytes, at most {} are taken",
            body.len(),
            limits.bytes
        ));
        return walk.scan;
    }
    while walk.step() == Flow::On {}
    if walk.count > limits.members {
        walk.invalid(format!(
            "the bundle has {} members, at most {} are taken",
            walk.count, limits.members
        ));
    }
    if walk.scan.tree.is_overgrown() {
        walk.invalid(format!(
            "the bundle has more than {} directories",
            limits.directories
        ));
    }
    walk.scan
}

/// What headers said about the member that comes after them.
#[derive(Debug, Default)]
struct Pending<'a> {
    long_name: Option<&'a [u8]>,
    long_link: bool,
    pax: Option<Pax<'a>>,
    global: bool,
}

impl Pending<'_> {
    fn is_empty(&self) -> bool {
        self.is_local_empty() && !self.global
    }

    fn is_local_empty(&self) -> bool {
        self.long_name.is_none() && !self.long_link && self.pax.is_none()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Stop,
}

struct Walk<'a> {
    body: &'a [u8],
    at: usize,
    next: Pending<'a>,
    count: usize,
    scan: Scan,
}

impl<'a> Walk<'a> {
    fn invalid(&mut self, detail: impl Into<String>) {
        let finding = Finding::new(Code::BundleInvalid, detail);
        self.scan.findings.push(finding);
    }

    fn stop(&mut self, detail: impl Into<String>) -> Flow {
        self.invalid(detail);
        Flow::Stop
    }

    /// Refuses a member that is not what it may be.
    fn refuse(&mut self, name: &[u8], detail: impl Into<String>) {
        self.scan.tree.note_refused(name);
        let finding = Finding::new(Code::BundleUnsafe, detail);
        self.scan.findings.push(finding);
    }

    /// Takes one header with its content.
    fn step(&mut self) -> Flow {
        let rest = self.body.get(self.at..).unwrap_or_default();
        let Some(block) = rest.first_chunk::<BLOCK>() else {
            return match (self.at, rest.is_empty()) {
                (0, true) => self.stop("the bundle is empty"),
                (0, false) => self.stop(not_a_tar(self.body, "it is shorter than one header")),
                (_, true) => self.stop("the bundle is truncated: it ends without the end of a tar"),
                (_, false) => self.stop("the bundle is truncated in the middle of a header"),
            };
        };
        match read_head(block) {
            Err(why) if self.at == 0 => {
                self.stop(not_a_tar(self.body, &format!("its first header {why}")))
            }
            Err(why) => self.stop(format!("the header at byte {} {why}", self.at)),
            Ok(None) => self.finish(rest),
            Ok(Some(head)) => self.take(&head),
        }
    }

    /// The end: two zero blocks, and nothing but zeros behind them.
    fn finish(&mut self, rest: &[u8]) -> Flow {
        if !self.next.is_empty() {
            return self.stop("the last header of the tar describes a member that is not there");
        }
        if rest.len() < 2 * BLOCK {
            return self.stop("the bundle is truncated: it ends without the end of a tar");
        }
        if !is_zero(rest) {
            return self.stop("the tar goes on behind its end");
        }
        self.scan.complete = true;
        Flow::Stop
    }

    fn take(&mut self, head: &Head<'a>) -> Flow {
        let name = self.name_of(head);
        let start = self.at + BLOCK;
        let left = self.body.len() - start;
        let fits = usize::try_from(head.size)
            .ok()
            .filter(|size| *size <= left)
            .and_then(|size| Some((size, size.checked_next_multiple_of(BLOCK)?)));
        let Some((size, padded)) = fits.filter(|(_, padded)| *padded <= left) else {
            return self.stop(format!(
                "the bundle is truncated: {} claims {} bytes, and {left} are left",
                show(&name),
                head.size
            ));
        };
        let range = start..start + size;
        let data = self.body.get(range.clone()).unwrap_or_default();
        self.at = start + padded;
        match head.kind {
            Kind::LongName | Kind::LongLink | Kind::PaxLocal | Kind::PaxGlobal => {
                match self.remember(head.kind, data) {
                    Ok(()) => Flow::On,
                    Err(why) => self.stop(format!("{} {why}", show(&name))),
                }
            }
            _ => self.take_member(head, &name, range),
        }
    }

    /// The name of what a header introduces, with what came before it taken into account.
    fn name_of(&self, head: &Head<'a>) -> Cow<'a, [u8]> {
        let told = match head.kind {
            Kind::LongName | Kind::LongLink | Kind::PaxLocal | Kind::PaxGlobal => None,
            _ => (self.next.pax.as_ref())
                .and_then(|pax| pax.path)
                .or(self.next.long_name),
        };
        told.map_or_else(|| head.name.clone(), Cow::Borrowed)
    }

    /// Keeps what a header says about the next member. Two that say the same thing, or a global one in between, are
    /// read differently by different programs.
    fn remember(&mut self, kind: Kind, data: &'a [u8]) -> Result<(), String> {
        let again = match kind {
            Kind::LongName => self.next.long_name.replace(read_long_name(data)?).is_some(),
            Kind::LongLink => std::mem::replace(&mut self.next.long_link, true),
            Kind::PaxLocal => self.next.pax.replace(read_pax(data)?).is_some(),
            _ => {
                if !read_pax(data)?.is_harmless() {
                    return Err("is a global header that names or sizes members".into());
                }
                self.next.global = true;
                !self.next.is_local_empty()
            }
        };
        if again {
            return Err("is a header too many for one member".into());
        }
        let both = self.next.pax.as_ref().is_some_and(|pax| pax.path.is_some());
        if both && self.next.long_name.is_some() {
            return Err("gives a member a second long name".into());
        }
        Ok(())
    }

    fn take_member(&mut self, head: &Head<'a>, name: &[u8], range: Range<usize>) -> Flow {
        let pax = std::mem::take(&mut self.next).pax.unwrap_or_default();
        if pax.foreign {
            return self.stop(format!("{} has PAX records of GNU tar's own", show(name)));
        }
        if pax.sparse {
            self.count += 1;
            self.refuse(name, format!("{} is a sparse member", show(name)));
            // A sparse member's PAX size is that of what is in the tar, like its header's.
        }
        if pax.size.is_some_and(|size| size != head.size) {
            return self.stop(format!("{} has two different sizes", show(name)));
        }
        if pax.sparse {
            return Flow::On;
        }
        match head.kind {
            Kind::Never(what) => {
                self.count += 1;
                self.refuse(name, format!("{} is {what}", show(name)));
                if head.size == 0 {
                    return Flow::On;
                }
                // Some readers skip the content of a link, others take it for headers.
                self.stop(format!(
                    "{} has content, so the rest was not read",
                    show(name)
                ))
            }
            Kind::Sparse { extended } => {
                self.count += 1;
                self.refuse(name, format!("{} is a sparse member", show(name)));
                self.skip_sparse_map(extended, range)
            }
            _ => self.take_path(head, name, range),
        }
    }

    /// The map of an old sparse member goes on in blocks between its header and its content.
    fn skip_sparse_map(&mut self, mut extended: bool, range: Range<usize>) -> Flow {
        let mut at = range.start;
        while extended {
            let Some(block) = self.body.get(at..at + BLOCK) else {
                return self.stop("the bundle is truncated in a sparse member");
            };
            extended = block.get(504) != Some(&0);
            at += BLOCK;
            self.at += BLOCK;
        }
        Flow::On
    }

    fn take_path(&mut self, head: &Head<'a>, name: &[u8], range: Range<usize>) -> Flow {
        // A file whose name ends in a slash is a directory to GNU tar, as it was before directories had a type.
        let directory = head.kind == Kind::Directory || name.ends_with(b"/");
        if directory && head.size > 0 {
            return self.stop(format!("the directory {} has content", show(name)));
        }
        let path = match check_name(name) {
            Ok(Name::Root) if directory => return Flow::On,
            Ok(Name::Root) => Err(format!("{} is the root, as a file", show(name))),
            Ok(Name::Inside(path)) => Ok(path),
            Err(why) => Err(why),
        };
        self.count += 1;
        let added = path.and_then(|path| {
            if directory {
                self.scan.tree.add_directory(&path)?;
            } else {
                self.scan.tree.add_file(&path)?;
                let member = Member {
                    range,
                    executable: head.executable,
                };
                self.scan.members.insert(path, member);
            }
            Ok(())
        });
        if let Err(why) = added {
            self.refuse(name, why);
        }
        Flow::On
    }
}

fn not_a_tar(body: &[u8], why: &str) -> String {
    match guess(body) {
        Some(kind) => format!("the bundle is not a tar but looks like {kind}"),
        None => format!("the bundle is not a tar: {why}"),
    }
}
