//! Reads one 512-byte tar header, and the records of a PAX header, strictly. The `tar` crate decodes the fields; this
//! file decides which headers are taken at all. Where two readers of tar would see different things (a number field
//! that one of them skips, a prefix that only one of them honours, a record that one of them misses), the header is
//! refused, so that what was judged is what any tool would unpack. Takes blocks, gives [`Head`] and [`Pax`] or the
//! reason; knows nothing of the archive around them.

use std::borrow::Cow;
use tar::{EntryType, Header};

/// The size of a tar block.
pub(super) const BLOCK: usize = 512;

const SIZE: std::ops::Range<usize> = 124..136;
const MODE: std::ops::Range<usize> = 100..108;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const MAGIC: std::ops::Range<usize> = 257..265;
const PREFIX_START: usize = 345;

/// What a header introduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// GNU's long name of the next member.
    LongName,
    /// GNU's long link target of the next member.
    LongLink,
    /// PAX records for the next member.
    PaxLocal,
    /// PAX records for all members that follow.
    PaxGlobal,
    /// An old GNU sparse file; `extended` says that its map goes on in the next block.
    Sparse {
        /// Whether map blocks follow.
        extended: bool,
    },
    /// Something that a bundle never holds, in words.
    Never(&'static str),
}

/// One header, decoded.
#[derive(Debug)]
pub(super) struct Head<'a> {
    /// What it introduces.
    pub(super) kind: Kind,
    /// The name, as the header itself gives it.
    pub(super) name: Cow<'a, [u8]>,
    /// How many bytes of content follow.
    pub(super) size: u64,
    /// Whether any execute bit is set.
    pub(super) executable: bool,
}

/// Decodes a block; `None` is the all-zero block that ends an archive.
pub(super) fn read_head(block: &[u8; BLOCK]) -> Result<Option<Head<'_>>, String> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let header = Header::from_byte_slice(block);
    check_sum(block, header)?;
    let gnu = header.as_gnu().is_some();
    let ustar = header.as_ustar().is_some();
    let plain = block.get(MAGIC).is_some_and(is_zero);
    if !(gnu || ustar || plain) {
        return Err("is of an unknown tar format".into());
    }
    // Python joins the prefix to the name in every format, GNU tar only where POSIX has it.
    if !ustar && block.get(PREFIX_START) != Some(&0) {
        return Err("has a name prefix that its format does not know".into());
    }
    check_number(block.get(SIZE), "size")?;
    check_number(block.get(MODE), "mode")?;
    let size = header.entry_size().map_err(|_| wrong_number("size"))?;
    let mode = header.mode().map_err(|_| wrong_number("mode"))?;
    let kind = match header.entry_type() {
        EntryType::Regular | EntryType::Continuous => Kind::File,
        EntryType::Directory => Kind::Directory,
        EntryType::GNULongName => Kind::LongName,
        EntryType::GNULongLink => Kind::LongLink,
        EntryType::XHeader => Kind::PaxLocal,
        EntryType::XGlobalHeader => Kind::PaxGlobal,
        EntryType::GNUSparse => Kind::Sparse {
            extended: header.as_gnu().is_some_and(tar::GnuHeader::is_extended),
        },
        EntryType::Symlink => Kind::Never("a symbolic link"),
        EntryType::Link => Kind::Never("a hard link"),
        EntryType::Char | EntryType::Block => Kind::Never("a device"),
        EntryType::Fifo => Kind::Never("a fifo"),
        _ => Kind::Never("a member of an unknown type"),
    };
    Ok(Some(Head {
        kind,
        name: name_of(header),
        size,
        executable: mode & 0o111 != 0,
    }))
}

/// The name, the prefix in front where the format has one. A field with something behind its NUL is taken whole: the NUL
/// stays in the name, where the check of names will find it.
fn name_of(header: &Header) -> Cow<'_, [u8]> {
    let name = header.as_old().name.as_slice();
    let prefix = header.as_ustar().map_or(&[][..], |ustar| &ustar.prefix);
    if hides_bytes(name) || hides_bytes(prefix) {
        Cow::Owned([prefix, name].concat())
    } else {
        header.path_bytes()
    }
}

/// Whether there is something behind the first NUL of a text field.
fn hides_bytes(field: &[u8]) -> bool {
    field
        .iter()
        .position(|byte| *byte == 0)
        .and_then(|end| field.get(end..))
        .is_some_and(|rest| !is_zero(rest))
}

/// Whether all bytes are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn check_sum(block: &[u8; BLOCK], header: &Header) -> Result<(), String> {
    let field: u32 = block.get(CHECKSUM).unwrap_or_default().iter().fold(0, add);
    let blanks = 8 * u32::from(b' ');
    let sum = block.iter().fold(0, add) - field + blanks;
    check_number(block.get(CHECKSUM), "checksum")?;
    match header.cksum() {
        Ok(claimed) if claimed == sum => Ok(()),
        _ => Err("has a wrong checksum".into()),
    }
}

fn add(sum: u32, byte: &u8) -> u32 {
    sum + u32::from(*byte)
}

fn wrong_number(what: &str) -> String {
    format!("has a {what} that is no number")
}

/// Whether every reader takes the field for the same number: blanks, octal digits, then nothing but blanks and NUL; or
/// GNU's binary form, positive and of at most 64 bits.
fn check_number(field: Option<&[u8]>, what: &str) -> Result<(), String> {
    let field = field.unwrap_or_default();
    let good = if field.first() == Some(&0x80) {
        let high = field.len().saturating_sub(8);
        field.get(1..high.max(1)).is_some_and(is_zero)
    } else {
        let digits = field.trim_ascii_start();
        let end = digits
            .iter()
            .position(|byte| !(b'0'..=b'7').contains(byte))
            .unwrap_or(digits.len());
        end > 0
            && digits
                .get(end..)
                .is_some_and(|rest| rest.iter().all(|byte| matches!(byte, 0 | b' ')))
            && field.iter().all(|byte| !matches!(byte, b'\t'..=b'\r'))
    };
    if good {
        Ok(())
    } else {
        Err(wrong_number(what))
    }
}

/// What the records of a PAX header say that matters here; times, owners, comments and attributes do not.
#[derive(Debug, Default)]
pub(super) struct Pax<'a> {
    /// The name of the member.
    pub(super) path: Option<&'a [u8]>,
    /// The size of its content.
    pub(super) size: Option<u64>,
    /// Whether it is a sparse file.
    pub(super) sparse: bool,
    /// A record of GNU tar that changes what is unpacked.
    pub(super) foreign: bool,
}

impl Pax<'_> {
    /// Whether the records change no more than times, owners and comments.
    pub(super) fn is_harmless(&self) -> bool {
        self.path.is_none() && self.size.is_none() && !self.sparse && !self.foreign
    }
}

/// Reads records of the form `LENGTH KEY=VALUE\n`. The crate's own iterator splits at newlines and ends at an empty
/// line, so a record behind one would be seen by GNU tar and not by us; the lengths lead here.
pub(super) fn read_pax(mut data: &[u8]) -> Result<Pax<'_>, String> {
    let broken = || "has a PAX record that cannot be read".to_owned();
    let mut pax = Pax::default();
    while !data.is_empty() {
        let blank = data.iter().position(|b| *b == b' ').ok_or_else(broken)?;
        let digits = data.get(..blank).unwrap_or_default();
        if digits.len() > 10 || !digits.iter().all(u8::is_ascii_digit) {
            return Err(broken());
        }
        let length = std::str::from_utf8(digits)
            .ok()
            .and_then(|text| text.parse::<usize>().ok())
            .ok_or_else(broken)?;
        let record = data
            .get(blank + 1..length)
            .and_then(|record| record.strip_suffix(b"\n"))
            .ok_or_else(broken)?;
        let equals = record.iter().position(|b| *b == b'=').ok_or_else(broken)?;
        let key = record.get(..equals).unwrap_or_default();
        let value = record.get(equals + 1..).unwrap_or_default();
        take_record(&mut pax, key, value)?;
        data = data.get(length..).unwrap_or_default();
    }
    Ok(pax)
}

fn take_record<'a>(pax: &mut Pax<'a>, key: &[u8], value: &'a [u8]) -> Result<(), String> {
    match key {
        b"path" if pax.path.is_some() => Err("has two PAX paths".into()),
        // An empty value takes the record back in some readers and gives an empty name in others.
        b"path" if value.is_empty() => Err("has an empty PAX path".into()),
        b"path" => {
            pax.path = Some(value);
            Ok(())
        }
        b"size" => {
            let size = std::str::from_utf8(value)
                .ok()
                .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|text| text.parse().ok())
                .ok_or("has a PAX size that is no number")?;
            if pax.size.replace(size).is_some() {
                return Err("has two PAX sizes".into());
            }
            Ok(())
        }
        _ => {
            pax.sparse |= key.starts_with(b"GNU.sparse.") || key == b"SCHILY.realsize";
            pax.foreign |= key.starts_with(b"GNU.volume.") || key == b"GNU.dumpdir";
            Ok(())
        }
    }
}

/// The name in a GNU long-name member: up to its NUL, behind which there is nothing else. Without a NUL, other readers
/// go on into the padding.
pub(super) fn read_long_name(data: &[u8]) -> Result<&[u8], String> {
    let end = data
        .iter()
        .position(|b| *b == 0)
        .ok_or("is a long name without an end")?;
    Ok(match data.get(end..) {
        Some(rest) if is_zero(rest) => data.get(..end).unwrap_or(data),
        // The NUL stays in the name, where the check of names will find it.
        _ => data,
    })
}

/// What the first bytes of something that is not a tar look like.
pub(super) fn guess(body: &[u8]) -> Option<&'static str> {
    const STARTS: [(&[u8], &str); 8] = [
        (b"\x1f\x8b", "gzip: send the tar uncompressed"),
        (b"BZh", "bzip2: send the tar uncompressed"),
        (b"\xfd7zXZ\0", "xz: send the tar uncompressed"),
        (b"\x28\xb5\x2f\xfd", "zstd: send the tar uncompressed"),
        (b"PK\x03\x04", "a zip archive"),
        (b"{", "JSON"),
        (b"[", "JSON"),
        (b"<", "HTML or XML"),
    ];
    STARTS
        .iter()
        .find(|(start, _)| body.trim_ascii_start().starts_with(start))
        .map(|(_, name)| *name)
}
