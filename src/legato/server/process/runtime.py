"""A server process from start to end: its roles, and its records among the store's members."""

import asyncio
import codecs
import contextlib
import logging
import os
import signal
import ssl
from collections.abc import Callable, Iterable

from legato import selectors
from legato.errors import ConfigError, FencedError, ListenError, StoreError
from legato.ha.arbiter import Arbiter
from legato.ha.lock import StoreLock
from legato.ha.members import Member, Membership
from legato.ha.roles import Event, Role, next_role
from legato.ha.watcher import Intervals
from legato.quoting import sentence
from legato.replication.arbiter import LogArbiter
from legato.server.config.configuration import Config
from legato.server.config.restart import given, take, tell_restart
from legato.server.config.secret_files import make_private
from legato.server.identity.certificates import tls_context
from legato.server.identity.users import Users
from legato.server.management.takeover_report import STARTED, Takeover
from legato.server.monitoring.monitor import Monitor
from legato.server.monitoring.readings import PrimaryReadings
from legato.server.process.bound_address import see_bindable, why_not_bindable
from legato.server.process.console_process import ConsoleProcess
from legato.server.process.group_map_watch import GroupMapWatch
from legato.server.process.primary_epoch import EpochEnding, PrimaryEpoch
from legato.server.process.service_manager import ServiceManager
from legato.server.process.standby import outlive_holder, stand_by, until_held_by_another, until_taken
from legato.server.process.usable import read_again, see_usable
from legato.server.process.watchdog import Watchdog
from legato.server.storage.fault_injection import make_clock
from legato.server.storage.maintenance import Upkeep
from legato.server.storage.replicated_log import begin_replica, hold_directory, open_group_maps
from legato.store.environment import refuse_no_file

log = logging.getLogger("legato.runtime")

INFORM_AGAIN_S = 2.0
MAINTAIN_EVERY_S = 30.0
LOOK_AT_ADDRESS_EVERY_S = 5.0
PASS_ON_PAUSE_S = 0.5
"""Before a backup that cannot listen waits for the lock again: another one may have it."""
GROUP_MAP = "group map"
"""What a replica waits for, beside parts of its own."""


class Runtime:
    """Composition root: runs the roles of this process, one after the other."""

    def __init__(self, config: Config, read_config: Callable[[], Config]) -> None:
        self._config = config
        self._read_config = read_config
        self._started = given(config)
        self._primary: PrimaryEpoch | None = None
        self._reload_waits = False
        """Whether the configuration is to be read again when the epoch has begun, or does not begin."""
        self._stop = asyncio.Event()
        self._lock: Arbiter = StoreLock(config.store_directory)
        self._directory_lock: StoreLock | None = None
        """On the directory of a replica."""
        self._replica: LogArbiter | None = None
        self._group_map: GroupMapWatch | None = None
        self._looked_at_map = asyncio.Event()
        self._maintaining: asyncio.Task[None] | None = None
        self._waits: tuple[list[str], int] = [], 0
        """Why the replica waits, and since when."""
        self._address_trouble, self._address_trouble_since_us = "", 0
        self._noted_trouble: tuple[list[str], int] = [], 0
        self._clock = make_clock()
        self._role = Role.STARTING
        self._epoch = 0
        self._users = Users()
        self._tls: ssl.SSLContext | None = None
        self._membership: Membership | None = None
        self._informing: asyncio.TimerHandle | None = None
        self._service_manager = ServiceManager()
        with config.locating_errors():
            self._console = ConsoleProcess(config) if config.http.console else None
        self._monitor = Monitor(config, self._service_manager.turned if self._service_manager.has_watchdog else None)

    async def run(self) -> None:
        """Serve until a signal or a fatal error.

        Raises:
            ConfigError: the configuration cannot be used here (address taken, unreadable certificate ...).
            StoreError: the store cannot be used, or this process was fenced.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_all)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        with self._config.locating_errors():
            self._tls = tls_context(self._config.tls)
        self._users = Users.load(self._config)
        for said in see_usable(self._config, self._users):
            log.warning("! %s", said)
        refuse_no_file(self._config.store_directory)
        make_private(self._config.store_directory, "the store")
        if self._config.ledger.enabled:
            make_private(self._config.ledger_directory, "the ledger", within=False)
        self._monitor.start()
        self._monitor.read = self._read
        self._monitor.damaged = self._damaged
        if self._console is not None:
            self._console.start()
        member = Member(Role.STARTING, os.getpid(), self._config.server.listen, tls=self._tls is not None)
        self._membership = Membership(self._config.store_directory, member)
        self._turn(Event.STARTED)
        try:
            if self._config.replication.servers:
                await self._begin_replica()
            if self._config.groups.map_in_log:
                await self._begin_group_map()
            if self._lock.try_acquire():
                takeover: Takeover | None = Takeover(STARTED, 0.0)
            else:
                self._tell_role()
                await see_bindable(self._config)
                takeover = await self._stand_by()
            while takeover is not None:
                await self._serve_one_epoch(takeover)
                takeover = None if self._stop.is_set() else await self._stand_by()
            self._turn(Event.STOP)
        finally:
            if self._informing is not None:
                self._informing.cancel()
            self._lock.release()
            if self._maintaining is not None:
                self._maintaining.cancel()
            if self._group_map is not None:
                await asyncio.to_thread(self._group_map.close)
            if self._replica is not None:
                await asyncio.to_thread(self._replica.close)
            if self._directory_lock is not None:
                self._directory_lock.release()
            self._membership.close()
            self._monitor.stop()
            if self._console is not None:
                await self._console.stop()

    async def _begin_replica(self) -> None:
        self._directory_lock = hold_directory(self._config.store_directory)
        self._lock = self._replica = replica = await asyncio.to_thread(begin_replica, self._config, self._clock)
        self._monitor.replica = replica.status
        loop = asyncio.get_running_loop()

        def changed() -> None:
            with contextlib.suppress(RuntimeError):  # The process ends, and its loop has.
                loop.call_soon_threadsafe(self._note_waiting, replica)

        replica.waiting.changed = changed
        self._note_waiting(replica)
        self._maintaining = asyncio.create_task(self._maintain(replica))

    async def _begin_group_map(self) -> None:
        """Go by the map of groups that the log's servers keep; without one nobody knows what this broker serves."""
        loop = asyncio.get_running_loop()

        def tell(trouble: str, is_new: bool) -> None:
            with contextlib.suppress(RuntimeError):  # The process ends, and its loop has.
                loop.call_soon_threadsafe(self._note_group_map, trouble, file.exists(), is_new)

        found, name = self._config.group_map_file, self._config.groups.name
        assert found is not None
        file = found
        self._group_map = GroupMapWatch(open_group_maps(self._config), file, name, tell)
        if not file.exists():
            self._announce("backup")
        while not file.exists() and not self._stop.is_set():
            self._looked_at_map.clear()
            waits = [asyncio.create_task(event.wait()) for event in (self._looked_at_map, self._stop)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    def _note_group_map(self, trouble: str, has_one: bool, is_new: bool) -> None:
        """The log's servers were looked at for a map: why not to go by theirs, and whether there is one, a new one."""
        self._looked_at_map.set()
        if self._replica is not None:
            if trouble and not has_one:
                self._replica.waiting.begin(GROUP_MAP, trouble)
            else:
                self._replica.waiting.end(GROUP_MAP)
        service = self._primary.service if self._primary is not None else None
        if service is not None:
            service.membership.trouble = trouble
        if is_new and service is not None:
            try:
                service.renew_map(self._config)
            except ConfigError as error:
                log.error("! the map of groups stays as it was: %s", error)

    def _note_waiting(self, replica: LogArbiter) -> None:
        self._waits = replica.waiting.why, replica.waiting.since_us or 0
        self._note_trouble()

    def _note_trouble(self) -> None:
        """Let those know who look at the store's processes: a backup can be asked for nothing else."""
        trouble, since_us = self._waits
        if self._address_trouble:
            trouble, since_us = [*trouble, self._address_trouble], since_us or self._address_trouble_since_us
        if self._membership is not None and (trouble, since_us) != self._noted_trouble:
            self._noted_trouble = trouble, since_us
            self._membership.note_trouble(trouble, since_us)
            self._inform()

    async def _maintain(self, replica: LogArbiter) -> None:
        """See that a backup's store forgets what a primary's does, which has its own maintenance."""
        store = replica.store
        upkeep = Upkeep(store, self._config.store, self._clock, follows=True)
        while True:
            await asyncio.sleep(MAINTAIN_EVERY_S)
            if replica.store is not store:  # It was seeded.
                store = replica.store
                upkeep = Upkeep(store, self._config.store, self._clock, follows=True)
            if not replica.held:
                await asyncio.to_thread(upkeep.forget, prune=True)

    def _stop_all(self) -> None:
        self._stop.set()
        self._service_manager.stopping()
        if self._primary is not None:
            self._primary.stop()

    def _reload(self) -> None:
        """Read the configuration again; if it cannot be used, say so and go on as before."""
        service = self._primary.service if self._primary is not None else None
        try:
            if service is not None:
                service.reload()
            elif self._primary is not None:  # It has the settings already, and nobody who could go by others.
                self._reload_waits = True
                log.info("= the configuration is read again as soon as the epoch has begun")
            else:
                read, _ = self._renew()
                log.info("= the configuration was read again")
                tell_restart(self._started, read)
        except ConfigError as error:
            log.error("! the configuration was not read again: %s", error)

    def _reload_late(self) -> None:
        """Do what was asked for while an epoch was about to begin."""
        if self._reload_waits:
            self._reload_waits = False
            self._reload()

    def _renew(self) -> tuple[Config, list[str]]:
        """Take what a primary takes with a reload; returns what was read, and the sections that have changed.

        Raises:
            ConfigError: it cannot be used; what held goes on to hold.
        """
        read, config, self._users, tls = read_again(self._config, self._read_config, self._users)
        self._tls = tls or self._tls
        return read, take(self._config, config)

    def _renew_before_epoch(self) -> None:
        """Serve by the settings and users as they are now, of which nobody may have told this backup.

        A primary that was reloaded is followed by one with the same settings; who was removed is not let in.
        """
        try:
            read, changed = self._renew()
        except ConfigError as error:
            log.error("! the configuration was not read again, and holds as it was: %s", error)
        else:
            if changed:
                log.info("= the configuration has changed since it was read last: %s", sentence(", ".join(changed)))
            tell_restart(self._started, read)
            return
        try:
            self._users = self._users.renewed(self._config)
        except ConfigError as error:
            log.error("! the users were not read again: %s", error)
        try:
            self._tls = tls_context(self._config.tls)
        except ConfigError as error:
            log.error("! the certificate was not read again: %s", error)

    def _turn(self, event: Event, *, tell: bool = True) -> None:
        """Take the role that `event` leads to, and let others know, and the log unless it hears of it otherwise."""
        self._role = next_role(self._role, event)
        # Whether it is a backup is known, and told, when somebody else has the lock.
        if tell and event is not Event.STARTED:
            self._tell_role()
        self._monitor.turn(self._role, self._epoch)
        if self._membership is not None:
            self._membership.update(role=self._role, epoch=self._epoch)
        self._inform()

    def _tell_role(self) -> None:
        """Whoever ends for good hands over to nobody, if there is no backup."""
        role = "stopping" if self._role is Role.HANDING_OVER and self._stop.is_set() else self._role
        log.info("= %s", role)

    def _inform(self) -> None:
        """Write our record for others, if there was no room for it before."""
        if self._informing is not None:
            self._informing.cancel()
        recorded = self._membership is None or self._membership.refresh()
        if not (self._lock.refresh() and recorded):
            self._informing = asyncio.get_running_loop().call_later(INFORM_AGAIN_S, self._inform)

    def _read(self, done: Callable[[PrimaryReadings], None]) -> bool:
        """Take readings of the present epoch for a scrape; returns whether there is one."""
        service = self._primary.service if self._primary is not None else None
        if service is None or service.activity is None or self._role is not Role.PRIMARY:
            return False
        service.read(done)
        return True

    def _damaged(self) -> Iterable[str]:
        """What of the store the present epoch could not read. For any thread."""
        service = self._primary.service if self._primary is not None else None
        return service.damaged.all() if service is not None else ()

    async def _stand_by(self) -> Takeover | None:
        """Wait until the store's lock is ours; None if we were told to stop instead (CONTRACT B2)."""
        self._announce("backup")
        selectors.prepare()
        # Python loads this codec when a listener is first given a host's name: 2 ms that clients would wait for.
        codecs.lookup("idna")
        watching = asyncio.create_task(self._watch_address())
        try:
            return await stand_by(
                self._config, self._lock, self._clock, self._stop, self._turn, self._is_recorded, self._adopt
            )
        finally:
            watching.cancel()
            self._address_trouble = self._monitor.address_trouble = ""
            self._note_trouble()

    async def _watch_address(self) -> None:
        """Notice in time that another program has taken the address at which this backup would serve."""
        while True:
            await asyncio.sleep(LOOK_AT_ADDRESS_EVERY_S)
            trouble = await why_not_bindable(self._config)
            if trouble == self._address_trouble:
                continue
            if trouble:
                self._address_trouble_since_us = self._clock.now_us()
                log.error("! this backup could not take over: %s", sentence(trouble))
            else:
                log.info("= the address of this backup is free again: it can take over")
            self._address_trouble = self._monitor.address_trouble = trouble
            self._note_trouble()

    def _adopt(self, intervals: Intervals) -> None:
        """Should we take over they are to go on as the primary has them."""
        self._config.ha.heartbeat_interval_s = intervals.heartbeat_s
        self._config.ha.activation_interval_s = intervals.activation_s

    def _is_recorded(self) -> bool:
        """Whether the primary can read of us where it looks: among the members of its own directory."""
        return self._replica is None and self._membership is not None and self._membership.is_recorded

    def _announce(self, role: str) -> None:
        """The one line on standard output that scripts wait for; nobody may read it, or its disk may be full."""
        try:
            print(role, flush=True)
        except OSError as error:
            log.warning("! standard output cannot be written: %s", error.strerror)
        self._service_manager.ready(role)

    async def _serve_one_epoch(self, takeover: Takeover) -> None:
        """Be the primary until that is over; afterwards a backup, unless the process is to end."""
        self._turn(Event.WON)
        await outlive_holder(self._lock, self._config.store_directory, self._stop)
        if self._stop.is_set():
            return
        # What is only just started has read all.
        if takeover.cause != STARTED or self._replica is not None:
            self._renew_before_epoch()
        primary = self._primary = PrimaryEpoch(
            self._config,
            self._lock,
            self._clock,
            self._read_config,
            self._watchdog(),
            self._users,
            self._service_manager.busy,
        )
        try:
            ending = await primary.run(takeover, self._tls, self._began, lambda: self._turn(Event.LEAVES))
        except FencedError as error:
            log.warning("! %s", error)
            ending = EpochEnding.LOST
            self._lock.release()
        except ListenError as error:
            if takeover.cause == STARTED:
                raise
            log.error("! another backup is to take over: %s", sentence(str(error)))
            ending = EpochEnding.LOST
            self._lock.give_back()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), PASS_ON_PAUSE_S)
        except StoreError:
            # Nobody fenced it: the error says what it was.
            self._turn(Event.LOST, tell=False)
            raise
        finally:
            self._primary = None
            if primary.service is not None:  # It may have been reloaded.
                self._users, self._tls = primary.service.authentication.users, primary.tls
        self._reload_late()
        if ending is EpochEnding.LOST:
            self._turn(Event.LOST)
        if not self._stop.is_set():
            self._turn(Event.STEPPED_DOWN)
            if primary.backups(but=os.getpid()):
                # Whoever waits for the lock shall have it before we wait for it again.
                if ending is EpochEnding.LOST:
                    await until_held_by_another(self._lock, self._stop)
                else:
                    await until_taken(self._lock, self._stop, self._config.ha.activation_interval_s)

    def _watchdog(self) -> Watchdog:
        ha = self._config.ha
        return Watchdog(ha.activation_interval_s if ha.watchdog_s is None else ha.watchdog_s)

    def _began(self, epoch: int) -> None:
        self._epoch = epoch
        # Nobody is let in before this turn of the loop is over.
        self._reload_late()
        self._turn(Event.ACTIVATED)
        self._announce(f"active epoch={epoch}")
        # Of a primary that was never a backup; beside the loop, as it takes a good part of a turn.
        asyncio.get_running_loop().run_in_executor(None, selectors.prepare)
        if self._stop.is_set() and self._primary is not None:
            self._primary.stop()
