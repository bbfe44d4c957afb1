//! The exec-server: serves sessions to clients over any byte stream.

use std::sync::Arc;

use plimsoll::{Bound, Budget, CloseReason, Dialect, Limits, PeerBuilder};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::session::Session;
use crate::wire::{self, EnvironmentInfo, PeerLimits, ServerAdditions};

/// Runs processes for clients.
///
/// ```no_run
/// use plimsoll_exec::{ExecServer, Limits};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// let server = ExecServer::new(Limits::exec());
/// eprintln!("{}", server.limits());
/// let (stdin, stdout) = (plimsoll::stdio::stdin()?, plimsoll::stdio::stdout()?);
/// let reason = server.serve(stdin, stdout, std::future::pending()).await;
/// eprintln!("{reason}");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ExecServer {
    limits: Limits,
    budget: Budget,
    info: EnvironmentInfo,
}

impl ExecServer {
    /// A server within these limits, clamped so that they hold together.
    pub fn new(mut limits: Limits) -> Self {
        for change in limits.clamp() {
            tracing::warn!("{change}");
        }
        let told = |bound: Bound| match bound {
            Bound::AtMost(most) => Some(most.get()),
            Bound::Unbounded => None,
        };
        let additions = ServerAdditions {
            methods: vec![wire::PROCESS_CLOSE_STDIN.into()],
            limits: PeerLimits {
                message_bytes: told(limits.message_bytes()),
                json_values: told(limits.json_values()),
                depth: told(limits.depth()),
                in_flight: told(limits.in_flight()),
                processes: told(limits.processes()),
            },
        };
        let info = EnvironmentInfo::of_this_machine(env!("CARGO_PKG_VERSION"), additions);
        Self { budget: Budget::new(limits.memory()), limits, info }
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Serves one client until it leaves or `stop` is ready. Then every process of its session is ended: TERM, `grace`,
    /// KILL, and reaped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the session's processes at once.
    pub async fn serve<R, W>(&self, reader: R, writer: W, stop: impl Future<Output = ()>) -> CloseReason
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let session = Session::new(&self.limits, &self.info);
        let _killed = Killed(session.clone());
        let (peer, connection) = PeerBuilder::new(self.limits.clone())
            .dialect(Dialect::Bare)
            .budget(&self.budget)
            .router(session.router())
            .connect(reader, writer);
        let mut running = std::pin::pin!(connection.run());
        let reason = tokio::select! {
            reason = &mut running => reason,
            () = stop => {
                // The client still hears how its processes ended.
                tokio::select! {
                    () = session.end() => {}
                    reason = &mut running => {
                        session.end().await;
                        return reason;
                    }
                }
                peer.close();
                running.await
            }
        };
        session.end().await;
        reason
    }
}

/// However serving ends, no process of the session runs on: the tasks that supervise them hold the session, so it would
/// not end by being dropped.
struct Killed(Arc<Session>);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill();
    }
}
