package legato.interop;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectUniqueId;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.ClassNameFilter;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Lists the tests of a jar, or runs those that come in on standard input, and reports line by line.
 *
 * <p>Lines have fields divided by tabs. In: {@code MILLISECONDS ID}, a test with its time-out. Out: {@code test ID CLASS
 * METHOD} for a list; {@code start ID} and {@code end ID passed|failed|skipped MILLISECONDS TEXT} for a run. What tests print goes to standard error. A test
 * that outlasts the time-out is interrupted, and where that does not help this process ends with code 3.
 */
public final class SuiteRunner implements TestExecutionListener {
    private static final int HUNG = 3;
    private static final int TEXT_LENGTH_MAX = 2000;
    private static final long GRACE_MS = 5000;

    private final PrintStream report;
    private final Map<String, Long> timeoutsMs;
    private final Thread tests = Thread.currentThread();
    private final AtomicInteger number = new AtomicInteger();
    private long startedNs;
    private volatile String hung = "";

    private SuiteRunner(PrintStream report, Map<String, Long> timeoutsMs) {
        this.report = report;
        this.timeoutsMs = timeoutsMs;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream report = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        if (arguments[0].equals("list")) {
            list(report, Path.of(arguments[1]), arguments[2]);
        } else {
            run(report);
        }
        report.flush();
        // Clients under test may have left threads behind.
        System.exit(0);
    }

    private static void list(PrintStream report, Path jar, String classPattern) {
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
                .selectors(DiscoverySelectors.selectClasspathRoots(Set.of(jar)))
                .filters(ClassNameFilter.includeClassNamePatterns(classPattern))
                .build();
        TestPlan plan = LauncherFactory.create().discover(request);
        for (TestIdentifier root : plan.getRoots()) {
            for (TestIdentifier test : plan.getDescendants(root)) {
                if (test.isTest() && test.getSource().orElse(null) instanceof MethodSource method) {
                    report.println(String.join("\t", "test", test.getUniqueId(), method.getClassName(), method.getMethodName()));
                }
            }
        }
    }

    private static void run(PrintStream report) throws Exception {
        Map<String, Long> timeoutsMs = new LinkedHashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t");
            timeoutsMs.put(fields[1], Long.valueOf(fields[0]));
        }
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
                .selectors(timeoutsMs.keySet().stream().map(each -> selectUniqueId(each)).toList())
                .build();
        Launcher launcher = LauncherFactory.create();
        launcher.execute(request, new SuiteRunner(report, timeoutsMs));
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        if (test.isTest()) {
            report.println("start\t" + test.getUniqueId());
            startedNs = System.nanoTime();
            watch(number.incrementAndGet(), timeoutsMs.get(test.getUniqueId()));
        }
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        long tookMs = (System.nanoTime() - startedNs) / 1_000_000;
        String text = result.getThrowable().map(SuiteRunner::explain).orElse("");
        String stuck = endWatch();
        if (test.isTest()) {
            boolean passed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL && stuck.isEmpty();
            String outcome = result.getStatus() == TestExecutionResult.Status.ABORTED ? "skipped" : passed ? "passed" : "failed";
            end(test.getUniqueId(), outcome, tookMs, stuck.isEmpty() ? text : "timed out at " + stuck + " | " + text);
        } else if (result.getThrowable().isPresent()) {
            end(test.getUniqueId(), "failed", tookMs, text);
        }
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        end(test.getUniqueId(), "skipped", 0, reason);
    }

    private void end(String identifier, String outcome, long tookMs, String text) {
        report.println(String.join("\t", "end", identifier, outcome, Long.toString(tookMs), text));
    }

    private synchronized void watch(int mine, long timeoutMs) {
        Thread watcher = new Thread(() -> interruptIfLate(mine, timeoutMs), "time-out");
        watcher.setDaemon(true);
        watcher.start();
    }

    /** Where the test hung if it did; what interrupted it does not interrupt the next one. */
    private synchronized String endWatch() {
        number.incrementAndGet();
        notifyAll();
        Thread.interrupted();
        String stuck = hung;
        hung = "";
        return stuck;
    }

    private synchronized void interruptIfLate(int mine, long timeoutMs) {
        if (!waitWhile(mine, timeoutMs)) {
            return;
        }
        hung = stack(tests.getStackTrace());
        tests.interrupt();
        if (waitWhile(mine, GRACE_MS)) {
            report.println("hung\t" + hung);
            report.flush();
            Runtime.getRuntime().halt(HUNG);
        }
    }

    /** Whether the test numbered {@code mine} still runs after that time. */
    private boolean waitWhile(int mine, long milliseconds) {
        long end = System.nanoTime() + milliseconds * 1_000_000;
        try {
            for (long left = milliseconds; number.get() == mine && left > 0; left = (end - System.nanoTime()) / 1_000_000) {
                wait(left);
            }
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        }
        return number.get() == mine;
    }

    private static String explain(Throwable thrown) {
        StringBuilder text = new StringBuilder();
        for (Throwable each = thrown; each != null; each = each.getCause()) {
            text.append(text.isEmpty() ? "" : " <- ").append(each.toString().replaceAll("\\s+", " "));
            if (each.getCause() == null) {
                text.append(" at ").append(stack(each.getStackTrace()));
            }
        }
        return text.substring(0, Math.min(text.length(), TEXT_LENGTH_MAX));
    }

    private static String stack(StackTraceElement[] frames) {
        List<String> lines = new ArrayList<>();
        for (StackTraceElement frame : frames) {
            String name = frame.getClassName();
            if (lines.size() < 14 && !name.startsWith("java.") && !name.startsWith("jdk.") && !name.startsWith("org.junit.") && !name.startsWith("junit.")) {
                lines.add(name.substring(name.lastIndexOf('.') + 1) + "." + frame.getMethodName() + ":" + frame.getLineNumber());
            }
        }
        return String.join(" < ", lines);
    }
}
