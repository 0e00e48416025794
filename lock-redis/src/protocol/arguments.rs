//! The arguments of each script, by their names. The first line of a script takes them by the same names, which a test compares:
//! `local holder, ttl = unpack(ARGV)`. It depends on nothing else, so that tests and benchmarks may read it by its path.

use std::borrow::Cow;

macro_rules! arguments {
    ($(
        $(#[$doc:meta])*
        $script:ident $name:ident { $($(#[$field_doc:meta])* $field:ident),+ $(,)? }
        $(; { $($(#[$rest_doc:meta])* $rest:ident),+ $(,)? })?
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default)]
            pub(crate) struct $name<'a> {
                $($(#[$field_doc])* pub(crate) $field: Cow<'a, str>,)+
                $($($(#[$rest_doc])* pub(crate) $rest: Cow<'a, str>,)+)?
            }

            impl $name<'_> {
                all!($($field),+ $(; $($rest),+)?);
            }
        )+

        /// The names of the arguments, by the script: those that it takes one by one, and those that it takes in one text.
        #[cfg(test)]
        pub(crate) const NAMES: &[(&str, &[&str], &[&str])] = &[$((
            super::files::$script,
            &[$(stringify!($field)),+],
            &[$($(stringify!($rest)),+)?],
        )),+];
    };
}

macro_rules! all {
    ($($field:ident),+) => {
        /// In the order in which the script takes them.
        pub(crate) fn all(&self) -> [&str; [$(stringify!($field)),+].len()] {
            [$(&self.$field),+]
        }
    };
    ($($field:ident),+; $($rest:ident),+) => {
        /// In the order in which the script takes them. The last one is the rest, with a space between each two: an argument
        /// costs the server about a third of a `GET`.
        pub(crate) fn all(&self) -> [Cow<'_, str>; 1 + [$(stringify!($field)),+].len()] {
            let rest = [$(&*self.$rest),+].join(" ");
            [$((&*self.$field).into(),)+ rest.into()]
        }
    };
}

/// As they are sent.
pub(crate) fn texts<'a, const COUNT: usize>(all: &'a [Cow<'_, str>; COUNT]) -> [&'a str; COUNT] {
    all.each_ref().map(|argument| &**argument)
}

/// The text of "yes" in script arguments. "No" is an empty text.
pub(crate) const YES: &str = "1";

arguments! {
    ACQUIRE AcquireArguments {
        holder,
        /// In milliseconds, as all times.
        ttl,
        /// With a space in front of it, or empty.
        label,
        /// "1": the mode is exclusive, there is no floor and no queue entry, so the rest does not matter where the name is free.
        is_plain,
    }; {
        /// Where the purpose stands in all keys but the lock's, in bytes.
        purpose_at,
        /// The token that a grant has to exceed, or "0"; or, after "=", the one that it has to reach without the server's clock.
        floor,
        mode,
        grace,
        /// Of a queue entry, without a refresh.
        lifetime,
        /// "1": the asker may have a queue entry.
        may_have_entry,
        /// The channel on which the asker is woken. Empty: it does not enter the queue.
        inbox,
    }
    GRANT_TOGETHER GrantTogetherArguments {
        /// Of all.
        ttl,
        /// The same, as for one.
        label,
    }
    RENEW RenewArguments {
        holder,
        ttl,
    }
    RENEW_TOGETHER RenewTogetherArguments {
        /// Of all.
        ttl,
    }
    END EndArguments {
        /// The holder id. Or the value of the lock's key as the grant left it, which begins with that: then the rest does not
        /// matter if the value is still the same and nobody waits.
        held,
    }; {
        /// The same of its keys.
        purpose_at,
        grace,
        mode,
        /// The time for which the name stays taken. Empty: it is free at once.
        keep_for,
        /// "1": a late request of this holder id has to find a tombstone.
        leaves_tombstone,
        /// "1": to search on for a connected waiter.
        searches_on,
        /// The channel of its queue entry. Empty: it has none.
        inbox,
    }
    DOWNGRADE DowngradeArguments {
        holder,
        ttl,
        grace,
        /// "1": the grant reserved tokens after its own.
        reserves,
    }
    RAISE RaiseArguments {
        holder,
        token,
    }
    REINSTATE ReinstateArguments {
        holder,
        ttl,
        /// With a space in front of it, or empty.
        label,
        token,
        mode,
        /// The last token that came with its grant.
        own_last,
        /// "1": the hold was exclusive, and its grant reserved tokens after its own.
        reserves,
    }
    REVOKE RevokeArguments {
        /// The token of the hold.
        asked,
        /// "1": the name is free at once. Empty: when the hold would have ended.
        at_once,
        /// A holder id that is nobody's.
        nobody,
        grace,
    }
    WAS_REVOKED WasRevokedArguments {
        holder,
    }
    MARK MarkArguments {
        /// The id of the server's run.
        own_run,
        /// The id of its last promotion: zeros if there was none, or if the server does not know it any more.
        own_promotion,
        /// Since when this run has its data by its other marks, or empty.
        known_since,
    }
    STATUS StatusArguments {
        most_waiters,
    }
}
