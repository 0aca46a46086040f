//! Parameters whose descriptions are told to the user too.

/// A structure of parameters: its fields' doc comments are what `fsbench list NAME` says of them.
macro_rules! parameters {
    ($(#[$outer:meta])* $vis:vis struct $name:ident {
        $($(#[doc = $doc:literal])+ $field_vis:vis $field:ident: $kind:ty,)+
    }) => {
        $(#[$outer])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $vis struct $name {
            $($(#[doc = $doc])+ $field_vis $field: $kind,)+
        }

        impl $name {
            /// Names and what they mean.
            $vis const ABOUT: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($doc),+)),)+];
        }
    };
}
