#!/usr/bin/env node
// Runs the binary of this platform's package: its files, signals and exit status are ours.
"use strict";
const { spawn } = require("node:child_process");

const name = `@monolite/${process.platform}-${process.arch}`;
const end = (why) => {
  console.error(`monolite: ${why}`);
  process.exit(1);
};
let binary;
try {
  binary = require.resolve(`${name}/monolite`);
} catch {
  const ours = Object.keys(require("./package.json").optionalDependencies).join(", ");
  end(`${name} is not installed. There are binaries in ${ours}, for glibc. If one of them is ` +
    "yours, install without --omit=optional; if not, build Monolite from source.");
}
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => end(`${binary} does not start: ${error.message}`));
child.on("exit", (status, signal) => {
  if (signal === null) process.exit(status);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
