//! What a binary is made of: `build-musl` leaves a list of the functions and tables that it held before it was stripped,
//! and every name says its crate.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates that take the most, with their bytes. `Err` says that there is no list.
pub fn largest_crates(binary: &Path, count: usize) -> Result<Vec<(String, u64)>, String> {
    let mut list = binary.as_os_str().to_owned();
    list.push(".symbols");
    let list = PathBuf::from(list);
    let text = fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    for line in text.lines() {
        // `0000000000011d30 0000000000000123 t name`
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, size, kind, name] = words[..] else {
            continue;
        };
        // What is zero at the start takes no room in the file.
        if "bB".contains(kind) {
            continue;
        }
        let size = u64::from_str_radix(size, 16).map_err(|e| format!("{line}: {e}"))?;
        *sizes.entry(crate_of(name).to_owned()).or_default() += size;
    }
    let mut sizes: Vec<(String, u64)> = sizes.into_iter().collect();
    sizes.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    sizes.truncate(count);
    Ok(sizes)
}

/// `monky_deployd 512 KiB, rustls 250 KiB`
pub fn shown(crates: &[(String, u64)]) -> String {
    let parts: Vec<String> = crates
        .iter()
        .map(|(name, size)| format!("{name} {} KiB", size.div_ceil(1024)))
        .collect();
    parts.join(", ")
}

/// The crate of a symbol, in either of Rust's manglings; what is not Rust's is ring's or the C library's.
fn crate_of(symbol: &str) -> &str {
    let found = if let Some(rest) = symbol.strip_prefix("_ZN") {
        of_path(rest)
    } else if symbol.starts_with("_R") {
        of_root(symbol)
    } else {
        None
    };
    found.unwrap_or(
        if symbol.contains("ring_core") || symbol.contains("ecp_nistz") {
            "ring"
        } else {
            "(C)"
        },
    )
}

/// `3foo3barE` is foo's; `61_$LT$T$u20$as$u20$foo..Bar$GT$3baz…`, an implementation, too: of the first path in it.
fn of_path(rest: &str) -> Option<&str> {
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    let (len, name) = rest.split_at(digits);
    let name = name.get(..len.parse().ok()?)?;
    if !name.starts_with("_$LT$") {
        return Some(name);
    }
    let path = &name[..name.find("..")?];
    let start = path.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    Some(&path[start.map_or(0, |at| at + 1)..])
}

/// `NtCs8w4ax0dKNtV_5gimli…`: the first crate root.
fn of_root(symbol: &str) -> Option<&str> {
    let mut rest = symbol;
    loop {
        let at = rest.find("Cs")?;
        rest = &rest[at + 2..];
        let hash = rest.find('_')?;
        let name = &rest[hash + 1..];
        let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        if let Ok(len) = name[..digits].parse::<usize>()
            && let Some(name) = name.get(digits..digits + len)
        {
            return Some(name);
        }
    }
}
