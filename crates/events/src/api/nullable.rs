//! Members of patches: absent, null, or a value.

use serde::{Deserialize, Deserializer};

#[expect(
    clippy::option_option,
    reason = "serde calls this function only for a present member, null or not"
)]
pub(super) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}
