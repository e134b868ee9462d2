"use strict";

// Keys, the switch for live pages, ticking all rows. Everything else is HTML, and htmx.
(function () {
  var isLive = true;
  var view = function () { return document.getElementById("view"); };
  var button = document.getElementById("live");
  var lost = document.getElementById("lost");
  var help = document.getElementById("keys-help");

  function setLive(wanted) {
    isLive = wanted;
    button.setAttribute("aria-pressed", String(wanted));
    button.textContent = wanted ? "Live" : "Stopped";
  }

  if (button && view() && view().hasAttribute("sse-connect")) {
    button.hidden = false;
    button.addEventListener("click", function () { setLive(!isLive); });
  }

  document.body.addEventListener("htmx:sseBeforeMessage", function (event) {
    if (lost) lost.hidden = true;
    // Nothing moves under a hand that is about to choose.
    var selection = window.getSelection();
    var chosen = selection && !selection.isCollapsed && view() && view().contains(selection.anchorNode);
    if (!isLive || document.hidden || chosen) event.preventDefault();
  });
  document.body.addEventListener("htmx:sseError", function () { if (lost) lost.hidden = false; });
  document.body.addEventListener("htmx:sseOpen", function () { if (lost) lost.hidden = true; });

  var all = document.getElementById("tick-all");
  if (all) {
    all.addEventListener("change", function () {
      document.querySelectorAll('input[type="checkbox"][name="id"]').forEach(function (box) { box.checked = all.checked; });
    });
  }

  function showHelp() { if (help && !help.open) help.showModal(); }
  var keys = document.getElementById("keys");
  if (keys) keys.addEventListener("click", showHelp);

  function moveRow(step) {
    var rows = Array.prototype.slice.call(document.querySelectorAll("[data-row]"));
    if (!rows.length) return;
    var at = rows.indexOf(document.activeElement);
    var next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1);
    rows[next].focus();
  }

  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    var target = event.target;
    if (help && help.open) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && target.type !== "checkbox" && target.type !== "radio") {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (event.key === "/") {
      var search = document.querySelector("[data-search]");
      if (search) { search.focus(); search.select(); event.preventDefault(); }
    } else if (event.key === "?") {
      showHelp();
    } else if (event.key === "j") {
      moveRow(1);
    } else if (event.key === "k") {
      moveRow(-1);
    } else if (event.key === "l" && button && !button.hidden) {
      setLive(!isLive);
    } else {
      var place = document.querySelector('nav [data-key="' + (/^[a-z]$/.test(event.key) ? event.key : "-") + '"]');
      if (place) place.click();
    }
  });
})();
