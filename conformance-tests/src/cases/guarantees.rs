//! The events that a hold survives, as its backend declares them.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::request::RequestControl;
use lock_core::backend::{AcquireRequest, Attempt, DistributedLock};
use lock_core::{FencingToken, Guarantee};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::context::{LOOK_AGAIN, RawCx};
use crate::harness::Data;
use crate::link::Link;
use crate::raw::{Grant, drive, is_live};
use crate::verdict::{Skip, Stop, Verdict};

/// The number of names that are used beside the one that is held.
const OTHERS: usize = 100;

/// Long enough for a server to notice the end of a connection, and to grant a name for that.
const A_WHILE: Duration = Duration::from_secs(1);

/// Skips the case where the backend, which has read the server's settings, does not say that it keeps the guarantee.
async fn kept_or_skip(client: &Arc<dyn DistributedLock>, guarantee: Guarantee) -> Verdict {
    match client.keeps(guarantee).is_yes() {
        true => Ok(()),
        false => Err(Stop::Skipped(Skip::NotKept(guarantee))),
    }
}

/// A hold, and until when its holder was to have it, as far as it knew before the event.
struct Held {
    grant: Grant,
    until: Instant,
}

/// The grant of a second one.
struct Second {
    token: FencingToken,
    at: Instant,
    /// Whether the first holder believed in its hold at that moment.
    is_believed: bool,
}

impl Held {
    async fn by(cx: &RawCx, client: &Arc<dyn DistributedLock>) -> Result<Self, Stop> {
        let grant = cx.grant(client, "a").await?;
        let until = Instant::now() + grant.lease().valid_for();
        Ok(Self { grant, until })
    }

    /// A session renews its leases.
    fn look_again(&mut self) {
        self.until = Instant::now() + self.grant.lease().valid_for();
    }

    /// Another one was granted the name. That its holder has noticed it by now is no excuse: one that is cut off would go on believing.
    fn followed_by(&self, second: &Second, by: &str) -> Verdict {
        let left = self.until.saturating_duration_since(second.at);
        if !second.is_believed && left.is_zero() {
            return Ok(());
        }
        Err(Stop::second(
            second.is_believed,
            format!(
                "{by} ended a hold: {left:?} before the end of its lease its name was granted to a second one, token {}; the first \
                 believed in it: {}",
                second.token, second.is_believed
            ),
        ))
    }
}

/// Somebody who waits for the name through whatever happens.
struct Rival {
    client: Arc<dyn DistributedLock>,
    request: AcquireRequest,
    control: RequestControl,
    asking: JoinHandle<Result<Option<Second>, Stop>>,
}

impl Rival {
    async fn begin(cx: &RawCx, held: &Held) -> Result<Self, Stop> {
        let client = cx.connected().await?;
        let (request, control) = cx.request("a", cx.long_ttl().await)?;
        let (asker, asked, lease) = (client.clone(), request.clone(), held.grant.lease().clone());
        let asking = tokio::spawn(async move {
            loop {
                match drive(&*asker, &asked).await {
                    Ok(Attempt::Granted(hold, _)) => {
                        return Ok(Some(Second {
                            token: hold.token(),
                            at: Instant::now(),
                            is_believed: is_live(&lease),
                        }));
                    }
                    Err(error) if error.is_retryable() && !asked.is_given_up() => sleep(LOOK_AGAIN).await,
                    Ok(_) => return Ok(None),
                    Err(_) if asked.is_given_up() => return Ok(None),
                    Err(error) => return Err(Stop::error("wait", &error)),
                }
            }
        });
        let told = async {
            while request.last_busy().is_none() && !asking.is_finished() {
                sleep(LOOK_AGAIN).await;
            }
        };
        cx.soon("another one to be told that the name is taken", told).await?;
        Ok(Self {
            client,
            request,
            control,
            asking,
        })
    }

    /// Ends its wait. Fails if it was granted the name.
    async fn end(self, cx: &RawCx, held: &Held, by: &str) -> Verdict {
        self.control.give_up();
        let ended = cx.soon("a wait that was given up to end", self.asking).await?;
        let granted = ended.map_err(|panic| Stop::assertion(panic.to_string()))??;
        if let Some(second) = granted {
            held.followed_by(&second, by)?;
        }
        cx.abandoned(&self.client, &self.request).await
    }
}

/// Fails if another client is granted the name while its holder may believe in it.
async fn ensure_survived(cx: &RawCx, held: &Held, by: &str) -> Verdict {
    let other = cx.backend().await;
    // The server may only just be back.
    let answered = async {
        loop {
            match cx.try_once(&other, "a").await {
                Err(Stop::Failed(failure)) if !failure.asserted => sleep(LOOK_AGAIN).await,
                answer => return answer,
            }
        }
    };
    let answer = timeout(cx.patience(), answered).await;
    match answer.map_err(|_| Stop::assertion(format!("the server did not answer after {by}")))?? {
        Ok(second) => {
            let second = Second {
                token: second.token(),
                at: Instant::now(),
                is_believed: held.grant.is_live(),
            };
            held.followed_by(&second, by)
        }
        Err(_) => Ok(()),
    }
}

/// Waits until a client whose connection has ended is connected again. By then it knows what it has lost.
async fn connected_again(cx: &RawCx, client: &Arc<dyn DistributedLock>) -> Verdict {
    let connected = async {
        while client.connect().await.is_err() {
            sleep(LOOK_AGAIN).await;
        }
    };
    cx.soon("the client to connect again", connected).await
}

/// The server is killed while a name is held, and starts again with its data.
pub(crate) async fn a_hold_survives_a_crash_of_the_server(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    kept_or_skip(&client, Guarantee::ServerCrash).await?;
    let mut held = Held::by(cx, &client).await?;
    let (rival, by) = (Rival::begin(cx, &held).await?, "a crash of the server");
    held.look_again();
    cx.restart(Data::Kept).await;
    connected_again(cx, &client).await?;
    ensure_survived(cx, &held, by).await?;
    sleep(A_WHILE).await;
    rival.end(cx, &held, by).await
}

/// The holder's connection breaks, and it connects again.
pub(crate) async fn a_hold_survives_a_broken_connection(cx: &RawCx) -> Verdict {
    let link = Link::new();
    let client = cx.backend_through(&link).await;
    cx.connect(&client).await?;
    kept_or_skip(&client, Guarantee::ConnectionLoss).await?;
    let mut held = Held::by(cx, &client).await?;
    let (rival, by) = (Rival::begin(cx, &held).await?, "a broken connection");
    held.look_again();
    link.reset();
    connected_again(cx, &client).await?;
    ensure_survived(cx, &held, by).await?;
    sleep(A_WHILE).await;
    rival.end(cx, &held, by).await
}

/// Many other names are used while one is held.
pub(crate) async fn a_hold_is_not_evicted_by_other_names(cx: &RawCx) -> Verdict {
    let client = cx.connected().await?;
    kept_or_skip(&client, Guarantee::NoEviction).await?;
    let held = Held::by(cx, &client).await?;
    let others = async {
        for other in 0..OTHERS {
            cx.grant(&client, &format!("other {other}")).await?.release().await?;
        }
        Verdict::Ok(())
    };
    let what = "many other names to be used";
    cx.within(cx.timing().for_all_requests(), what, others).await??;
    ensure_survived(cx, &held, "the use of many other names").await
}
