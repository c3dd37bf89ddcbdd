//! The declaration of limits. A module declares a table of its limits beside the code that enforces them, and the
//! configuration collects the tables of all modules.

/// Declares the struct of a table of limits, with its defaults.
///
/// A table is a macro that calls another macro with its rows, because the configuration reads the same rows as
/// keys. It begins with the field of the table in `src/config/limits.rs` and the name of the struct. The rows
/// follow, by section of the configuration file. A row has the documentation of the key, the name of the field, the
/// name of the key if it differs, the type, the default, and the kind of the value (a function in
/// `src/config/key.rs`). Only debug builds read the section `testing`: its limits are constant for operators.
#[macro_export]
macro_rules! declare_limits {
    ($table:ident: $name:ident { $([$section:literal] { $(
        $(#[doc = $doc:literal])* $field:ident $(as $key:ident)?: $type:ty = $default:expr, $kind:ident;
    )+ })+ }) => {
        /// The limits of this module.
        #[derive(Debug, Clone)]
        pub struct $name {
            $($($(#[doc = $doc])* pub $field: $type,)+)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($($field: $default,)+)+ }
            }
        }
    };
}
