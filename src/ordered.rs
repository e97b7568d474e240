//! Ordered maps and sets from iterators, element by element. The standard `collect` sorts a list first, and each type of
//! element brings its own copy of that sort into the binary (4 KiB); for the few elements here inserting is as good.

use std::collections::{BTreeMap, BTreeSet};

/// The map of these pairs; of equal keys the last wins.
pub fn map_of<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(pairs);
    map
}

/// The set of these elements.
pub fn set_of<T: Ord>(elements: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(elements);
    set
}
