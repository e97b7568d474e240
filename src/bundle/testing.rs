//! Tars for the unit tests of this folder, made byte by byte: the hostile ones are what no library would write.

use super::verify::{VerifiedBundle, verify};
use crate::names::{EnvId, Sha256};

/// A tar in the making.
#[derive(Clone, Default)]
pub(super) struct Tar(pub(super) Vec<u8>);

/// The four required members.
pub(super) fn minimal() -> Vec<(&'static str, &'static [u8])> {
    vec![
        ("docker-compose.yml", b"services: {}\n"),
        (".env.template", b"A=1\n"),
        ("secrets.manifest.json", b"{\"entries\": []}"),
        ("meta.json", b"{}"),
    ]
}

/// A ustar header.
pub(super) fn header(kind: u8, name: &[u8], mode: u32, size: u64) -> [u8; 512] {
    let mut block = [0; 512];
    put(&mut block, 0, &name[..name.len().min(100)]);
    put(&mut block, 100, format!("{mode:07o}").as_bytes());
    put(&mut block, 108, b"0000000");
    put(&mut block, 116, b"0000000");
    put(&mut block, 124, format!("{size:011o}").as_bytes());
    put(&mut block, 136, b"00000000000");
    block[156] = kind;
    put(&mut block, 257, b"ustar\x0000");
    seal(&mut block);
    block
}

/// Writes `bytes` into a header.
pub(super) fn put(block: &mut [u8; 512], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Sets the checksum.
pub(super) fn seal(block: &mut [u8; 512]) {
    put(block, 148, b"        ");
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    put(block, 148, format!("{sum:06o}\0 ").as_bytes());
}

/// One PAX record.
pub(super) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    let mut record = format!("{length} {key}=").into_bytes();
    record.extend_from_slice(value);
    record.push(b'\n');
    record
}

impl Tar {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A raw block.
    pub(super) fn block(mut self, block: &[u8]) -> Self {
        self.0.extend_from_slice(block);
        self
    }

    /// Content with its padding.
    pub(super) fn data(mut self, data: &[u8]) -> Self {
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(super) fn entry(self, kind: u8, name: &str, mode: u32, data: &[u8]) -> Self {
        self.block(&header(kind, name.as_bytes(), mode, data.len() as u64))
            .data(data)
    }

    pub(super) fn file(self, name: &str, data: &[u8]) -> Self {
        self.file_with_mode(name, 0o644, data)
    }

    pub(super) fn file_with_mode(self, name: &str, mode: u32, data: &[u8]) -> Self {
        self.entry(b'0', name, mode, data)
    }

    /// A PAX header for the next member.
    pub(super) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        self.pax_of(b'x', records)
    }

    pub(super) fn pax_of(self, kind: u8, records: &[(&str, &[u8])]) -> Self {
        let data: Vec<u8> = records.iter().flat_map(|(k, v)| record(k, v)).collect();
        self.entry(kind, "pax", 0o644, &data)
    }

    pub(super) fn members(self, members: Vec<(&str, &[u8])>) -> Self {
        members
            .into_iter()
            .fold(self, |tar, (name, data)| tar.file(name, data))
    }

    /// The whole archive.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }

    /// The archive as a verified bundle for `env-qa-02`.
    pub(super) fn verified(self) -> VerifiedBundle {
        let body = self.end();
        let sha = Sha256::of(&body);
        verify(body, &sha, &EnvId::new("env-qa-02").unwrap()).unwrap()
    }
}
