//! The rule by which a fence admits holders.
//!
//! A fence protects a resource from holders whose lock has expired. It keeps the newest tokens that have entered. A writer enters
//! if no newer token has, and a reader if no newer writer has. Both register: readers that only check let an older writer change
//! what they read in between, and so do readers that only register.
//!
//! A server that decides by itself, as in a script, follows the same rule. Its tests compare it with this one.

use lock_core::{FencingToken, Stale};

pub use self::row::{Obstacle, check_resource, entry_error, fill_placeholders};

mod row;

/// The role in which a holder enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// With the token of an exclusive hold.
    Writer,
    /// With the token of a shared hold.
    Reader,
}

/// The newest tokens that have entered; 0 for none.
///
/// # Examples
/// ```
/// # use lock_core::{FencingToken, Stale};
/// # use lock_kit::fence::{Entered, Role};
/// let token = |number| FencingToken::new(number).unwrap();
/// let entered = Entered::default().enter(Role::Writer, token(5)).unwrap();
/// assert_eq!(entered.check(Role::Writer, token(5)), Ok(()));
///
/// let entered = entered.enter(Role::Reader, token(6)).unwrap();
/// assert_eq!(entered.check(Role::Writer, token(5)), Err(Stale::new(token(5), 6)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// The newest writer's token.
    pub writer: u64,
    /// The newest reader's token.
    pub reader: u64,
}

impl Entered {
    /// The tokens after this one has entered. The same token may enter again.
    ///
    /// # Errors
    /// [`Stale`] if a newer token has entered: of a writer, or of anybody if a writer wants to enter.
    pub fn enter(self, role: Role, token: FencingToken) -> Result<Self, Stale> {
        let (number, newest) = (token.as_u64(), self.newest_against(role));
        if newest > number {
            return Err(Stale::new(token, newest));
        }
        Ok(match role {
            Role::Writer => Self { writer: number, ..self },
            Role::Reader => Self {
                reader: self.reader.max(number),
                ..self
            },
        })
    }

    /// Checks that a token that has entered is still admitted.
    ///
    /// # Errors
    /// [`Stale`] if a newer token has entered since, or if this one never entered.
    pub fn check(self, role: Role, token: FencingToken) -> Result<(), Stale> {
        let number = token.as_u64();
        let is_admitted = match role {
            Role::Writer => self.writer == number && self.reader <= number,
            Role::Reader => self.writer <= number && number <= self.reader,
        };
        match is_admitted {
            true => Ok(()),
            false => Err(Stale::new(token, self.newest_against(role))),
        }
    }

    /// The newest token that keeps a smaller one of this role out.
    fn newest_against(self, role: Role) -> u64 {
        match role {
            Role::Writer => self.writer.max(self.reader),
            Role::Reader => self.writer,
        }
    }
}

#[cfg(test)]
mod tests;
