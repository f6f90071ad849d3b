"""A browser without a window, with the few options of Chromium's command line that the screenshots need.

Opens a page in QtWebEngine, writes a picture of it, and prints its document once the page has filled in its measurements.
"""

import sys

from PySide6.QtCore import QSize, Qt, QTimer, QUrl
from PySide6.QtWebEngineCore import QWebEnginePage, QWebEngineSettings
from PySide6.QtWebEngineWidgets import QWebEngineView
from PySide6.QtWidgets import QApplication

TRIES = 300
PAUSE_MS = 100
FILLED = "document.getElementById('measured')?.textContent ? document.documentElement.outerHTML : ''"


class Page(QWebEnginePage):
    def javaScriptConsoleMessage(self, level, message, line, source):
        print(f'CONSOLE({line})] "{message}", source: {source}', file=sys.stderr)


def option(name):
    return next(word.partition("=")[2] for word in sys.argv if word.startswith(f"--{name}="))


def main():
    app = QApplication(sys.argv[:1])
    view = QWebEngineView()
    page = Page(view)
    page.settings().setAttribute(QWebEngineSettings.WebAttribute.ShowScrollBars, False)
    view.setPage(page)
    view.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
    view.resize(QSize(*map(int, option("window-size").split(","))))
    left = TRIES

    def finish(html):
        nonlocal left
        left -= 1
        if html:
            # What is measured is also painted one moment later.
            QTimer.singleShot(5 * PAUSE_MS, lambda: (view.grab().save(option("screenshot")), print(html), app.exit(0)))
        elif left == 0:
            app.exit(1)
        else:
            QTimer.singleShot(PAUSE_MS, ask)

    def ask():
        page.runJavaScript(FILLED, finish)

    page.loadFinished.connect(lambda whole: ask() if whole else app.exit(1))
    page.load(QUrl(sys.argv[-1]))
    view.show()
    return app.exec()


sys.exit(main())
