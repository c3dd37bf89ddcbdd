//! The keys of the limits in `types/limits.rs`.
//!
//! Internal limits have no key in a release build. The section `[testing]` of debug builds sets them in tests.

use super::Config;
use super::key::{Key, key_table};
#[cfg(debug_assertions)]
use super::kinds::switch;
use super::kinds::{count, count_or_zero, percent, size, size_or_zero, time, time_or_zero};
#[cfg(debug_assertions)]
use crate::types::Limits;
use crate::types::limits::all_limits;

macro_rules! limit_keys {
    (
        operator { $([$section:literal] { $(
            $(#[doc = $doc:literal])+ $field:ident $(as $key:ident)?: $type:ty = $default:expr, $kind:ident;
        )+ })+ }
        internal { $(
            $(#[doc = $internal_doc:literal])* $internal:ident: $internal_type:ty = $internal_default:expr, $internal_kind:ident;
        )+ }
    ) => {
        pub(super) const KEYS: &[Key<Config>] = key_table! { Config:
            $([$section, local: true] {
                $($(#[doc = $doc])+ $field $(as $key)?: $kind => limits.$field;)+
            })+
        };

        #[cfg(debug_assertions)]
        pub(super) const TESTING: &[Key<Limits>] = key_table! { Limits:
            ["testing", local: true] { $($internal: $internal_kind => $internal;)+ }
        };
    };
}
all_limits!(limit_keys);
