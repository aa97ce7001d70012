"""The chat page in headless Chromium: type, send, stop, edit, reload."""
import shutil
import sys
import time

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness import Cases, PATIENCE, Server


def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1100,800"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options,
                            service=webdriver.ChromeService(shutil.which("chromedriver")))


class Page:
    def __init__(self, driver, url):
        self.d = driver
        self.d.get(url)
        self.wait(lambda: self.d.find_elements(By.CSS_SELECTOR, "#model option"))

    def wait(self, ready):
        until = time.time() + 3 * PATIENCE
        while not ready():
            assert time.time() < until, "the page does not get there: " + self.log()
            time.sleep(0.05)

    def id(self, name):
        return self.d.find_element(By.ID, name)

    def log(self):
        return self.id("log").text

    def messages(self):
        return self.d.find_elements(By.CSS_SELECTOR, ".message")

    def settings(self, **texts):
        self.id("gear").click()
        for name, text in texts.items():
            field = self.d.find_element(By.CSS_SELECTOR, f"[data-set={name}]")
            field.clear()
            field.send_keys(text)
        self.id("close").click()

    def send(self, text):
        self.id("prompt").send_keys(text)
        self.id("prompt").send_keys(Keys.ENTER)

    def idle(self):
        return self.id("send").is_displayed()

    def finish(self):
        self.wait(self.idle)


def sends(page):
    page.settings(max_tokens="40")  # a small model may never end by itself
    page.send("Say hello")
    page.wait(lambda: len(page.messages()) == 2)
    page.finish()
    assert page.messages()[1].find_element(By.CSS_SELECTOR, ".body").text
    assert "tok/s" in page.messages()[1].text


def stops(page, server):
    page.id("new").click()
    page.settings(system="Write very long answers.", max_tokens="")
    page.send("Write a story of a thousand words")
    page.wait(lambda: len(page.messages()) == 2 and page.messages()[1].text.count(" ") > 5)
    page.id("stop").click()
    page.finish()
    server.wait_idle()


def reloads(page):
    before = page.log()
    page.d.refresh()
    page.wait(lambda: len(page.messages()) == 2)
    assert page.messages()[0].text.splitlines()[0] == before.splitlines()[0]
    assert len(page.d.find_elements(By.CSS_SELECTOR, "#list li")) == 2


def edits(page):
    page.settings(max_tokens="40")
    page.messages()[0].find_element(By.XPATH, ".//button[text()='Edit']").click()
    assert page.id("prompt").get_attribute("value") == "Write a story of a thousand words"
    page.id("prompt").clear()
    page.send("Say hi")
    page.wait(lambda: len(page.messages()) == 2 and page.idle())
    first = page.messages()[1].find_element(By.CSS_SELECTOR, ".body").text
    page.messages()[1].find_element(By.XPATH, ".//button[text()='Again']").click()
    page.wait(lambda: len(page.messages()) == 2)
    page.finish()
    assert first and page.messages()[1].find_element(By.CSS_SELECTOR, ".body").text


def narrow(page):
    page.d.set_window_size(420, 800)
    assert not page.id("nav").is_displayed()
    page.id("menu").click()
    page.wait(lambda: page.id("nav").is_displayed())
    page.d.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.wait(lambda: not page.id("nav").is_displayed())
    wide = page.d.execute_script("return document.documentElement.scrollWidth > innerWidth")
    assert not wide


def quiet(page):
    assert page.d.get_log("browser") == []


def main():
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        print("skipped: there is no chromium with its driver here")
        sys.exit(77)
    cases = Cases()
    driver = browser()
    try:
        with Server("--context", "2048") as server:
            page = Page(driver, f"http://127.0.0.1:{server.port}/")
            cases.run(sends, page)
            cases.run(stops, page, server)
            for case in (reloads, edits, narrow, quiet):
                cases.run(case, page)
    finally:
        driver.quit()
    cases.finish()


main()
