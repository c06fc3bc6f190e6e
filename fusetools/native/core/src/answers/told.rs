//! Forms of values in answers to Python.

use serde::{Serialize, Serializer};

use crate::events;

/// Serialize a number, or None if it is ABSENT.
pub fn known<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    events::known(*value).serialize(serializer)
}

/// Serialize (key, value) as a map.
pub fn map<K, V, S>(rows: &[(K, V)], serializer: S) -> Result<S::Ok, S::Error>
where
    K: Serialize,
    V: Serialize,
    S: Serializer,
{
    serializer.collect_map(rows.iter().map(|(key, value)| (key, value)))
}
